"""The Triton kernels in Triton's interpreter, against the plain torch that defines them."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
import triton
import triton.language as tl
from torch import Tensor

from lightning_snnprec.kernels import Neuron, launch, plain
from lightning_snnprec.kernels.problem import encode
from lightning_snnprec.kernels.switches import SURROGATES
from lightning_snnprec.kernels.tiles import Tile
from tests.kernels.cases import LOW, current, inverse_tau, policies, shapes

SIZES = [(1, 3), (2, 31), (5, 129), (8, 16), (16, 7), (17, 33), (33, 5), (48, 16)]
# NumPy's 2^x may be an ULP off torch's.
EXPONENTIAL = {"rtol": 1e-6, "atol": 1e-7}
# The sum over neurons and time steps has another order.
SUM = {"rtol": 1e-4, "atol": 1e-4}


def both(
    x: Tensor, v: Tensor | None, neuron: Neuron, grads: tuple[Tensor | None, Tensor | None, Tensor | None]
) -> list[tuple[Tensor, Tensor]]:
    """Pairs of results, kernel's and plain torch's: four of forward, three of backward."""
    switches, numbers = encode(neuron)
    q = inverse_tau(neuron)
    asked = (x, v, q, switches, numbers, x.dtype, True, True, True)
    ours, theirs = launch.forward(*asked), plain.forward(*asked)
    rest = (x, theirs[3], v, q, switches, numbers, x.dtype, True, True, q is not None)
    back = (launch.backward(*grads, *rest), plain.backward(*grads, *rest))
    return [*zip(ours, theirs, strict=True), *zip(*back, strict=True)]


def gradients(x: Tensor, storage: torch.dtype) -> tuple[Tensor, Tensor | None, Tensor | None]:
    T, N = x.shape
    last, every = (random.choice([None, torch.randn(shape).to(storage)]) for shape in ((N,), (T, N)))
    return torch.randn(T, N).to(x.dtype), last, every


def test_fp32_is_exactly_equal() -> None:
    for neuron, (T, N) in zip(shapes(), itertools.cycle(SIZES), strict=False):
        x = current(T, N)
        results = both(x, random.choice([None, torch.randn(N)]), neuron, gradients(x, torch.float32))
        for a, b in results[:6]:
            assert torch.equal(a, b), (neuron, T, N)
        torch.testing.assert_close(*results[6], **SUM)


@pytest.mark.parametrize("name", SURROGATES)
def test_every_surrogate(name: str) -> None:
    x = current(5, 40)
    results = both(x, None, Neuron("lif", surrogate=name, alpha=random.uniform(0.5, 4.0)), gradients(x, torch.float32))
    for a, b in results[4:6]:
        torch.testing.assert_close(a, b, **EXPONENTIAL)


@triton.jit
def cast_kernel(from_ptr, to_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(to_ptr + at, tl.load(from_ptr + at, mask=at < count).to(to_ptr.dtype.element_ty), mask=at < count)


def cast(v: Tensor, dtype: torch.dtype) -> Tensor:
    """A cast by the interpreter, whose casts do not always round to nearest even."""
    result = torch.empty_like(v, dtype=dtype, memory_format=torch.contiguous_format)
    cast_kernel[(-(-v.numel() // 128),)](v.contiguous(), result, v.numel(), BLOCK=128)
    return result


@pytest.mark.parametrize("storage", LOW)
@pytest.mark.parametrize("x_dtype", [torch.float32, torch.bfloat16])
def test_low_precision_is_exactly_equal_up_to_casts(
    storage: torch.dtype, x_dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plain, "_saturated", cast)
    monkeypatch.setattr(plain, "_rounded", lambda v, dtype: v if dtype == torch.float32 else cast(v, dtype).float())
    cases = [*zip(shapes(), itertools.cycle(policies(storage)), strict=False)]
    for neuron, policy in random.sample(cases, 5):
        neuron, (T, N) = neuron._replace(**policy), random.choice(SIZES[:6])
        x = current(T, N, dtype=x_dtype)
        results = both(x, None, neuron, gradients(x, storage))
        for a, b in results[:6]:
            assert torch.equal(a.float(), b.float()), (neuron, T, N)
        torch.testing.assert_close(*results[6], **SUM)


def test_gradients_that_are_not_asked_for_or_not_given() -> None:
    switches, numbers = encode(Neuron("plif"))
    x, q = current(4, 20), torch.tensor(0.4)
    saved = torch.empty(0, 20)
    none = launch.backward(None, None, None, x, saved, None, q, switches, numbers, x.dtype, True, True, True)
    assert all(not grad.any() for grad in none)
    assert [grad.shape for grad in none] == [x.shape, x.shape[1:], (1,)]
    grads = (torch.randn(4, 20), None, None)
    only_q = launch.backward(*grads, x, saved, None, q, switches, numbers, x.dtype, False, False, True)
    whole = launch.backward(*grads, x, saved, None, q, switches, numbers, x.dtype, True, True, True)
    assert [grad.shape[0] for grad in only_q] == [0, 0, 1]
    assert torch.equal(only_q[2], whole[2])


@pytest.mark.parametrize("segment", [1, 2, 4, 8, 16])
def test_results_do_not_depend_on_the_tile(segment: int) -> None:
    switches, numbers = encode(Neuron("lif", tau=3.0))
    x, grad = current(11, 300), torch.randn(11, 300)
    asked = (x, None, None, switches, numbers, x.dtype, True, True, True)
    ours = launch.forward(*asked, tile=Tile(segment, 128 * random.choice([1, 2])))
    for a, b in zip(ours, plain.forward(*asked), strict=True):
        assert torch.equal(a, b)
    rest = (grad, None, None, x, ours[3], None, None, switches, numbers, x.dtype, True, True, False)
    backward = launch.backward(*rest, tile=Tile(16, 256)), plain.backward(*rest)
    for a, b in zip(*backward, strict=True):
        torch.testing.assert_close(a, b, **EXPONENTIAL)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.int64, torch.float16])
def test_other_input_dtypes(dtype: torch.dtype) -> None:
    switches, numbers = encode(Neuron("lif"))
    x = torch.randint(0, 2 if dtype == torch.bool else 5, (5, 19)).to(dtype)
    asked = (x, None, None, switches, numbers, torch.float32, False, True, True)
    for a, b in zip(launch.forward(*asked), plain.forward(*asked), strict=True):
        assert torch.equal(a, b)


def test_strided_and_expanded_inputs_and_gradients() -> None:
    switches, numbers = encode(Neuron("lif"))
    base = current(3, 5, 2, 8)
    for x in (base, base.transpose(0, 1), base[:, ::2], base.permute(0, 1, 3, 2), base[:, :1].expand(3, 4, 2, 8)):
        for grad in (torch.randn(x.shape), torch.randn(x.shape[1:]).expand(x.shape), torch.ones(()).expand(x.shape)):
            asked = (x, None, None, switches, numbers, x.dtype, True, True, False)
            ours, theirs = launch.forward(*asked), plain.forward(*(t.contiguous() if t is x else t for t in asked))
            assert torch.equal(ours[0], theirs[0])
            assert torch.equal(ours[1], theirs[1])
            rest = (grad, None, None, x, ours[3], None, None, switches, numbers, x.dtype, True, True, False)
            for a, b in zip(launch.backward(*rest), plain.backward(*rest), strict=True):
                torch.testing.assert_close(a, b, **EXPONENTIAL)
