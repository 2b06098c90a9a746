from __future__ import annotations

import pytest
import torch
from torch import Tensor

from lightning_snnprec.kernels import Neuron, run_sequence
from lightning_snnprec.kernels.layout import dense_steps, empty, ordered_as
from tests.kernels.cases import current

IMAGE = (4, 2, 3, 5, 6)  # T, B, C, H, W


def channels_last() -> Tensor:
    flat = current(8, 3, 5, 6).contiguous(memory_format=torch.channels_last)
    return flat.unflatten(0, (4, 2))


LAYOUTS = {
    "contiguous": lambda: current(4, 2, 6),
    "every other step": lambda: current(8, 2, 6)[::2],
    "channels last": channels_last,
    "batch first": lambda: current(2, 4, 6).transpose(0, 1),
    "every other neuron": lambda: current(4, 2, 12)[..., ::2],
    "expanded over time": lambda: current(1, 2, 6).expand(4, 2, 6),
    "expanded over batch": lambda: current(4, 1, 6).expand(4, 2, 6),
}
READ_AS_THEY_ARE = {"contiguous", "every other step", "channels last", "expanded over time"}


@pytest.mark.parametrize("name", LAYOUTS)
def test_only_what_leaves_gaps_is_copied(name: str) -> None:
    x = LAYOUTS[name]()
    dense = dense_steps(x)
    assert (dense is x) == (name in READ_AS_THEY_ARE)
    assert torch.equal(dense, x)


@pytest.mark.parametrize("name", LAYOUTS)
def test_results_are_those_of_contiguous_input(name: str) -> None:
    x = LAYOUTS[name]()
    leaf, copy = x.detach().requires_grad_(), x.clone(memory_format=torch.contiguous_format).requires_grad_()
    grad = torch.randn(x.shape)
    results = []
    for t in (leaf, copy):
        outputs = run_sequence(t, None, Neuron("lif"), all_membranes=True)
        results.append([*outputs, *torch.autograd.grad(outputs[0], t, grad)])
    for a, b in zip(*results, strict=True):
        assert torch.equal(a, b)


def test_channels_last_stays_channels_last() -> None:
    x = channels_last().requires_grad_()
    spikes, last, _ = run_sequence(x, None, Neuron("lif"))
    (grad,) = torch.autograd.grad(spikes.sum(), x)
    assert spikes.stride() == grad.stride() == x.stride()
    assert last.is_contiguous(memory_format=torch.channels_last)


def test_a_leaf_keeps_its_own_layout_in_its_gradient() -> None:
    x = current(2, 4, 6).transpose(0, 1).requires_grad_()
    run_sequence(x, None, Neuron("lif"))[0].sum().backward()
    assert x.grad is not None
    assert x.grad.stride() == x.stride()


def test_a_membrane_in_another_order_is_reordered() -> None:
    x = dense_steps(channels_last())
    v = torch.randn(2, 3, 5, 6)
    ordered = ordered_as(v, x, time=False)
    assert torch.equal(ordered, v)
    assert ordered.stride() == x.stride()[1:]
    assert ordered_as(ordered, x, time=False) is ordered
    assert ordered_as(empty(x, torch.float32, 4), x, time=True).stride() == x.stride()


def test_dimensions_of_size_one_have_no_order() -> None:
    x = torch.randn(4, 1, 6).as_strided((4, 1, 6), (6, 77, 1))
    assert dense_steps(x) is x
    v = torch.randn(1, 6)
    assert ordered_as(v, x, time=False) is v
