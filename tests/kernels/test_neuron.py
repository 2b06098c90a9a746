"""The entry of the kernels: dtypes, empty batches, what is asked for, and what is refused."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from lightning_snnprec.kernels import Neuron, obstacles, reads, run_sequence
from lightning_snnprec.kernels.problem import encode
from tests.kernels.cases import STORAGES, current


def test_a_machine_without_triton_is_enough_for_the_plain_torch() -> None:
    code = (
        "import sys\n"
        "sys.modules['triton'] = None\n"
        "import torch\n"
        "from lightning_snnprec.kernels import Neuron, run_sequence\n"
        "spikes, _, _ = run_sequence(torch.ones(3, 4), None, Neuron('if', storage=torch.float8_e4m3fn))\n"
        "assert spikes.all()"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("storage", STORAGES)
def test_the_membrane_has_the_policys_dtype_always(storage: torch.dtype | None) -> None:
    neuron = Neuron("lif", storage=storage)
    for x_dtype in (torch.float32, torch.bfloat16, torch.float16):
        v = None
        for _ in range(3):
            spikes, v, every = run_sequence(current(2, 3, 4, dtype=x_dtype), v, neuron, all_membranes=True)
            assert spikes.dtype == x_dtype
            assert v.dtype == every.dtype == (storage or torch.float32)


def test_only_what_is_asked_for_comes_back() -> None:
    spikes, last, every = run_sequence(current(3, 4), None, Neuron("if"), last_membrane=False)
    assert last is None
    assert every is None
    assert spikes.shape == (3, 4)


@pytest.mark.parametrize("shape", [(4, 0, 7), (4, 3, 0), (1, 0), (20, 0, 2)])
@pytest.mark.parametrize("storage", [None, torch.float8_e4m3fn])
def test_empty_batches(shape: tuple[int, ...], storage: torch.dtype | None) -> None:
    x, q = torch.randn(shape, requires_grad=True), torch.tensor(0.5, requires_grad=True)
    spikes, last, _ = run_sequence(x, None, Neuron("plif", storage=storage), q)
    assert spikes.shape == shape
    assert last.shape == shape[1:]
    grad_x, grad_q = torch.autograd.grad(spikes.sum(), (x, q))
    assert grad_x.shape == shape
    assert grad_q == 0.0


def test_integer_input_gives_spikes_of_the_default_dtype() -> None:
    x = torch.randint(0, 3, (4, 5), dtype=torch.uint8)
    spikes, _, _ = run_sequence(x, None, Neuron("if"))
    assert spikes.dtype == torch.float32
    assert torch.equal(spikes, run_sequence(x.float(), None, Neuron("if"))[0])
    assert reads(x)
    assert not reads(x.double())
    assert not reads(x.to(torch.complex64))


def test_carried_state_over_chunks_has_the_gradients_of_one_call() -> None:
    neuron = Neuron("lif", tau=3.0, surrogate="atan", alpha=2.0)
    x, grad = current(20, 6), torch.randn(20, 6)
    leaves = [x.clone().requires_grad_() for _ in range(2)]
    whole = run_sequence(leaves[0], None, neuron)[0]
    v, parts = None, []
    for chunk in leaves[1].split([1, 7, 12]):
        spikes, v, _ = run_sequence(chunk, v, neuron)
        parts.append(spikes)
    chunked = torch.cat(parts)
    assert torch.equal(whole, chunked)
    pair = (torch.autograd.grad(out, leaf, grad)[0] for out, leaf in zip((whole, chunked), leaves, strict=True))
    torch.testing.assert_close(*pair, rtol=1e-6, atol=1e-7)


def test_activation_checkpointing_changes_nothing() -> None:
    x, v = current(6, 5).requires_grad_(), torch.randn(5, requires_grad=True)
    neuron = Neuron("lif")
    plain = run_sequence(x, v, neuron)
    again = checkpoint(run_sequence, x, v, neuron, use_reentrant=False)
    for a, b in zip(plain[:2], again[:2], strict=True):
        assert torch.equal(a, b)
    pair = (torch.autograd.grad(r[0].sum() + r[1].sum(), (x, v)) for r in (plain, again))
    for a, b in zip(*pair, strict=True):
        assert torch.equal(a, b)


def test_an_input_changed_in_place_before_backward_is_noticed() -> None:
    x = current(3, 4).requires_grad_() * 1.0
    spikes, _, _ = run_sequence(x, None, Neuron("lif"))
    x.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        spikes.sum().backward()


def test_a_neuron_is_plain_data() -> None:
    neuron = Neuron("lif", storage=torch.bfloat16)
    assert copy.deepcopy(neuron) == pickle.loads(pickle.dumps(neuron)) == neuron


def test_what_a_kernel_would_read_past_the_end_of_is_refused() -> None:
    x, lif, plif = current(3, 4), Neuron("lif"), Neuron("plif")
    with pytest.raises(ValueError, match="no time steps"):
        run_sequence(x[:0], None, lif)
    with pytest.raises(ValueError, match=r"membrane has shape \(1,\), a time step of the input \(4,\)"):
        run_sequence(x, torch.zeros(1), lif)
    for neuron, q in ((lif, torch.tensor(0.5)), (plif, None), (plif, torch.rand(4))):
        with pytest.raises(ValueError, match="inverse_tau"):
            run_sequence(x, None, neuron, q)


def test_bad_constants_are_named() -> None:
    with pytest.raises(ValueError, match="surrogate='step'"):
        encode(Neuron("if", surrogate="step"))
    with pytest.raises(ValueError, match="forward='fp8'"):
        encode(Neuron("if", forward="fp8"))


def test_a_device_without_the_kernels_says_why() -> None:
    (reason,) = obstacles(torch.device("cpu"))
    assert "CUDA device" in reason
