"""Functional neurons against FP64 numbers computed one by one, numerical derivatives, and themselves in pieces."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from lightning_snnprec.neurons import (
    if_multi_step,
    if_step,
    lif_multi_step,
    lif_step,
    plif_multi_step,
    plif_step,
    surrogate,
)
from tests.neurons.cases import current

Multi = Callable[..., tuple[Tensor, Tensor, Tensor | None]]


def _by_hand(
    x: list[float], v: float, tau: float | None, decay: bool, v_reset: float | None
) -> list[tuple[int, float]]:
    rest, steps = v_reset or 0.0, []
    for current_t in x:
        if tau is None:
            h = v + current_t
        elif decay:
            h = v + (current_t - (v - rest)) / tau
        else:
            h = v - (v - rest) / tau + current_t
        spike = int(h >= 1.25)
        v = h if not spike else (h - 1.25 if v_reset is None else v_reset)
        steps.append((spike, v))
    return steps


@pytest.mark.parametrize("v_reset", [0.0, 0.25, None])
@pytest.mark.parametrize("decay", [True, False])
@pytest.mark.parametrize("kind", ["if", "lif", "plif"])
def test_values_are_those_computed_by_hand(kind: str, decay: bool, v_reset: float | None) -> None:
    tau = None if kind == "if" else 2.5
    multi_steps: dict[str, Multi] = {"if": if_multi_step, "lif": lif_multi_step, "plif": plif_multi_step}
    w = torch.logit(torch.tensor(1 / 2.5, dtype=torch.float64))
    arguments: dict[str, tuple[Any, ...]] = {"if": (), "lif": (tau, decay), "plif": (w, decay)}
    x, v = current(23, 1, 5, dtype=torch.float64), torch.randn(1, 5, dtype=torch.float64)
    spikes, last, all_v = multi_steps[kind](x, v, *arguments[kind], 1.25, v_reset, store_v_seq=True)
    assert all_v is not None
    for n in range(5):
        expected = _by_hand(x[:, 0, n].tolist(), v[0, n].item(), tau, decay, v_reset)
        assert spikes[:, 0, n].tolist() == [spike for spike, _ in expected]
        torch.testing.assert_close(all_v[:, 0, n].tolist(), [value for _, value in expected], rtol=1e-12, atol=1e-12)
    assert torch.equal(all_v[-1], last)
    assert 0 < spikes.mean() < 1


@pytest.mark.parametrize("v_reset", [0.0, -0.2, None])
@pytest.mark.parametrize("decay", [True, False])
def test_gradients_are_the_numerical_ones_of_smooth_spikes(decay: bool, v_reset: float | None) -> None:
    # With the primitive in place of the step the neurons are differentiable, so finite differences apply.
    smooth = surrogate.Sigmoid(1.3, spiking=False)
    x, v = current(3, 2, 2, dtype=torch.float64).requires_grad_(), torch.randn(2, 2, dtype=torch.float64)
    v.requires_grad_()
    w = torch.randn((), dtype=torch.float64, requires_grad=True)
    rest = (1.1, v_reset, smooth)
    assert torch.autograd.gradcheck(lambda x, v: if_multi_step(x, v, *rest)[:2], (x, v))
    assert torch.autograd.gradcheck(lambda x, v: lif_multi_step(x, v, 1.9, decay, *rest)[:2], (x, v))
    assert torch.autograd.gradcheck(lambda x, v, w: plif_multi_step(x, v, w, decay, *rest)[:2], (x, v, w))


def test_one_call_equals_steps_and_equals_two_halves() -> None:
    x, v = current(9, 4, 3), torch.randn(4, 3)
    w = torch.tensor(-0.4)
    whole = plif_multi_step(x, v, w, store_v_seq=True)
    first = plif_multi_step(x[:4], v, w)
    second = plif_multi_step(x[4:], first[1], w)
    assert torch.equal(whole[0], torch.cat([first[0], second[0]]))
    assert torch.equal(whole[1], second[1])
    for t in range(9):
        spikes, v = plif_step(x[t], v, w)
        assert torch.equal(spikes, whole[0][t])
        assert torch.equal(v, whole[2][t])


def test_a_number_is_a_membrane_filled_with_it() -> None:
    x = current(5, 4, 3)
    for filled, number in ((torch.zeros(4, 3), 0.0), (torch.full((4, 3), 0.5), 0.5)):
        for a, b in zip(lif_multi_step(x, filled)[:2], lif_multi_step(x, number)[:2], strict=True):
            assert torch.equal(a, b)
    assert if_step(x[0].double(), 0)[1].dtype == torch.float64


def test_channel_wise_w_broadcasts() -> None:
    x, v, w = current(6, 4, 3), torch.randn(4, 3), torch.randn(3, requires_grad=True)
    spikes, last, _ = plif_multi_step(x, v, w)
    for n in range(3):
        alone = plif_multi_step(x[..., n : n + 1], v[:, n : n + 1], w[n])
        assert torch.equal(spikes[..., n : n + 1], alone[0])
        torch.testing.assert_close(last[:, n : n + 1], alone[1])
    assert torch.autograd.grad(last.sum(), w)[0].shape == (3,)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float8_e4m3fn])
def test_low_precision_membranes_become_fp32(dtype: torch.dtype) -> None:
    x = torch.full((3, 2), 0.7).to(dtype)
    spikes, v = lif_step(x, torch.full((3, 2), 0.5).to(dtype))
    assert spikes.dtype == dtype
    assert v.dtype == torch.float32
    assert torch.equal(v, 0.5 + (x.float() - 0.5) / 2.0)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64])
def test_spikes_that_are_not_floats_are_read_as_the_default_float(dtype: torch.dtype) -> None:
    x = torch.randint(0, 2, (5, 4, 3)).to(dtype)
    spikes, v, _ = if_multi_step(x, 0.0, 1.5)
    expected = if_multi_step(x.float(), 0.0, 1.5)
    assert spikes.dtype == v.dtype == torch.float32
    assert torch.equal(spikes, expected[0])
    assert torch.equal(v, expected[1])


def test_strides_do_not_matter() -> None:
    base = current(4, 6, 10)
    for x in (base.permute(1, 0, 2), base[:, ::2], base.transpose(1, 2)):
        a, b = x.detach().requires_grad_(), x.contiguous().requires_grad_()
        ours, theirs = lif_multi_step(a, 0.0), lif_multi_step(b, 0.0)
        assert torch.equal(ours[0], theirs[0])
        grads = [
            torch.autograd.grad(out[1].square().sum() + out[0].sum(), leaf)[0] for out, leaf in ((ours, a), (theirs, b))
        ]
        assert torch.equal(*grads)


@pytest.mark.parametrize("shape", [(5, 0, 3), (5, 3, 0), (1, 0)])
def test_empty_batch_gives_empty_spikes_with_a_gradient(shape: tuple[int, ...]) -> None:
    x = torch.zeros(shape, requires_grad=True)
    w = torch.tensor(0.3, requires_grad=True)
    spikes, v, v_seq = plif_multi_step(x, 0.0, w, store_v_seq=True)
    assert spikes.shape == v_seq.shape == shape
    assert v.shape == shape[1:]
    spikes.sum().backward()
    assert x.grad.shape == shape
    assert w.grad == 0


def test_bad_inputs_are_named() -> None:
    with pytest.raises(ValueError, match=r"at least one time step; found T=0 in shape \(0, 4, 3\)"):
        lif_multi_step(torch.zeros(0, 4, 3), 0.0)
    for shape in ((), (64,)):
        with pytest.raises(ValueError, match=r"\[T, B, ...\], time first; found shape .* step_mode='s'"):
            lif_multi_step(torch.zeros(shape), 0.0)
    with pytest.raises(
        ValueError, match=r"membrane has shape \(4, 3\), but one time step of this input has shape \(5, 3\)"
    ):
        if_multi_step(torch.zeros(2, 5, 3), torch.zeros(4, 3))
    with pytest.raises(ValueError, match=r"shape \(3,\), but .* shape \(4, 3\)"):
        if_step(torch.zeros(4, 3), torch.zeros(3))
    with pytest.raises(ValueError, match=r"tensor of real numbers as input; found a torch.complex64 tensor"):
        if_step(torch.zeros(4, dtype=torch.complex64), 0.0)
    with pytest.raises(ValueError, match="tensor of real numbers as input; found list"):
        if_multi_step([[0.0]], 0.0)
    with pytest.raises(ValueError, match="tau=1: needs a finite number > 1"):
        lif_step(torch.zeros(3), 0.0, tau=1)
    with pytest.raises(ValueError, match="decay_input='no': needs True or False"):
        plif_step(torch.zeros(3), 0.0, torch.tensor(0.0), decay_input="no")


def test_nothing_is_modified_in_place() -> None:
    x, v = current(4, 3, 2), torch.randn(3, 2)
    before = x.clone(), v.clone()
    versions = x._version, v._version
    lif_multi_step(x, v, v_reset=None, store_v_seq=True)
    assert (x._version, v._version) == versions
    assert torch.equal(x, before[0])
    assert torch.equal(v, before[1])


def test_nan_never_fires_and_stays() -> None:
    x = torch.tensor([[0.2, float("nan")], [2.0, 2.0], [2.0, 2.0]]).unsqueeze(1).requires_grad_()
    spikes, _, v_seq = if_multi_step(x, 0.0, store_v_seq=True)
    assert torch.equal(spikes[:, 0], torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 0.0]]))
    assert torch.isnan(v_seq[:, 0, 1]).all()
    assert not torch.isnan(v_seq[:, 0, 0]).any()
    (grad,) = torch.autograd.grad(spikes.sum(), x)
    assert torch.isnan(grad[:, 0, 1]).all()
    assert torch.isfinite(grad[:, 0, 0]).all()


def test_infinity_fires_and_leaves_nan_after_a_hard_reset() -> None:
    x = torch.tensor([[float("inf"), 0.5]])
    spikes, v = if_step(x, 0.0)
    assert torch.equal(spikes, torch.tensor([[1.0, 0.0]]))
    assert torch.isnan(v[0, 0])
    assert v[0, 1] == 0.5


def test_second_derivatives_reach_the_input() -> None:
    x = current(3, 2, 2, dtype=torch.float64).requires_grad_()
    smooth = surrogate.Sigmoid(1.3, spiking=False)
    assert torch.autograd.gradgradcheck(lambda x: lif_multi_step(x, 0.0, surrogate_function=smooth)[1], (x,))
    spikes, _, _ = lif_multi_step(x, 0.0)
    (first,) = torch.autograd.grad(spikes.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.square().sum(), x)
    assert torch.isfinite(second).all()
    assert second.abs().sum() > 0
