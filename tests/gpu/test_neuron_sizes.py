"""Layouts, odd, empty and huge sizes, and other devices."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lightning_snnprec.kernels import Neuron, run_sequence
from lightning_snnprec.kernels.device.backward import backward_kernel
from lightning_snnprec.kernels.device.forward import forward_kernel
from tests.kernels.cases import current
from tests.kernels.test_layout import LAYOUTS

LIF = Neuron("lif", surrogate="atan", alpha=2.0)


def results(x: Tensor, grad: Tensor, neuron: Neuron = LIF) -> list[Tensor]:
    leaf = x.detach().requires_grad_()
    spikes, last, every = run_sequence(leaf, None, neuron, all_membranes=True)
    return [spikes, last, every, *torch.autograd.grad(spikes, leaf, grad)]


@pytest.mark.parametrize("name", LAYOUTS)
def test_any_layout(name: str) -> None:
    for x in (LAYOUTS[name]().cuda(), LAYOUTS[name]().cuda().bfloat16()):
        grads = (
            torch.randn_like(x, memory_format=torch.contiguous_format),
            torch.randn(x.shape[1:], device="cuda", dtype=x.dtype).expand(x.shape),
            torch.ones((), device="cuda", dtype=x.dtype).expand(x.shape),
        )
        for grad in grads:
            for a, b in zip(results(x, grad), results(x.contiguous(), grad.contiguous()), strict=True):
                assert torch.equal(a, b)


def test_layouts_on_the_gpu_are_the_inputs_own() -> None:
    flat = current(8, 16, 7, 5, device="cuda").contiguous(memory_format=torch.channels_last)
    x = flat.unflatten(0, (4, 2))
    spikes, last, _, grad = results(x, torch.randn(x.shape, device="cuda"))
    assert spikes.stride() == grad.stride() == x.stride()
    assert last.is_contiguous(memory_format=torch.channels_last)


def test_an_unaligned_view() -> None:
    base = current(5, 4097, device="cuda")
    for x in (base[:, 1:], base.flatten()[3 : 3 + 4 * 4096].view(4, 4096)):
        grad = torch.randn(x.shape, device="cuda")
        for a, b in zip(results(x, grad), results(x.clone(), grad), strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("shape", [(4, 0, 7), (0 + 1, 0), (4, 3, 0), (20, 0, 2)])
@pytest.mark.parametrize("storage", [None, torch.float8_e4m3fn])
def test_empty_batches(shape: tuple[int, ...], storage: torch.dtype | None) -> None:
    x = torch.randn(shape, device="cuda", requires_grad=True)
    q = torch.tensor(0.5, device="cuda", requires_grad=True)
    spikes, last, _ = run_sequence(x, None, Neuron("plif", storage=storage), q)
    grad_x, grad_q = torch.autograd.grad(spikes.sum(), (x, q))
    assert spikes.shape == grad_x.shape == shape
    assert last.shape == shape[1:]
    assert grad_q == 0.0


def test_more_than_two_to_the_31_elements() -> None:
    T, N, part = 17, 2**27, 4096
    x = torch.randn(T, N, device="cuda", dtype=torch.bfloat16).mul_(1.5)
    grad = torch.randn(T, part, device="cuda", dtype=torch.bfloat16)
    leaf = x.requires_grad_()
    spikes, last, _ = run_sequence(leaf, None, LIF)
    # One gradient for every block of `part` neurons, without gaps in time: [T, N] again.
    (grad_x,) = torch.autograd.grad(spikes, leaf, grad.repeat(1, N // part))
    for start in (0, 2**26 + 64, N - part):
        rows = slice(start, start + part)
        at = torch.arange(start, start + part, device="cuda") % part
        expected = results(x.detach()[:, rows].contiguous(), grad[:, at])
        assert torch.equal(spikes[:, rows], expected[0])
        assert torch.equal(last[rows], expected[1])
        assert torch.equal(grad_x[:, rows], expected[3])
    assert 0.05 < spikes[-1].float().mean() < 0.6


def test_many_blocks_and_long_axes() -> None:
    x = torch.full((1, 2**31 + 128), 2.0, device="cuda", dtype=torch.float8_e5m2)
    with torch.no_grad():
        spikes, _, _ = run_sequence(x, None, Neuron("if"), last_membrane=False)
    assert spikes.view(torch.uint8).eq(spikes.view(torch.uint8)[0, 0]).all()
    assert spikes[0, -1].float() == 1.0
    x = current(2, 70_000, 3, device="cuda")
    grad = torch.randn(x.shape, device="cuda")
    for a, b in zip(results(x, grad), results(x.flatten(1), grad.flatten(1)), strict=True):
        assert torch.equal(a.flatten(), b.flatten())


def test_no_kernel_is_compiled_anew_within_a_bucket() -> None:
    def compiled() -> list[int]:
        device = torch.cuda.current_device()
        return [len(kernel.device_caches[device][0]) for kernel in (forward_kernel, backward_kernel)]

    def run(T: int, N: int, neuron: Neuron) -> None:
        x = current(T, N, device="cuda")
        results(x, torch.randn(T, N, device="cuda"), neuron)

    run(5, 4096, Neuron("lif", alpha=3.0, tau=1.5))
    run(17, 4096, Neuron("lif"))
    before = compiled()
    for T, N in ((6, 8192), (7, 16), (5, 4096 + 16)):
        run(T, N, Neuron("lif", v_threshold=0.8, alpha=2.0, tau=3.0))
    for T in (18, 100):
        run(T, 8000, Neuron("lif"))
    assert compiled() == before


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_a_device_that_is_not_the_current_one() -> None:
    x, grad = current(5, 129, device="cuda:1"), torch.randn(5, 129, device="cuda:1")
    for a, b in zip(results(x, grad), results(x.to("cuda:0"), grad.to("cuda:0")), strict=True):
        assert a.device == torch.device("cuda", 1)
        assert torch.equal(a, b.to(a.device))
