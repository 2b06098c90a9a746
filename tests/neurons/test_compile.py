"""Neurons under torch.compile, in one graph."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from lightning_snnprec import neurons
from lightning_snnprec.neurons import LIFNode, ParametricLIFNode, begin_batch, surrogate
from tests.neurons import tolerances
from tests.neurons.cases import KINDS, current


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def _compare(compiled: Any, node: nn.Module, eager: nn.Module, shape: tuple[int, ...]) -> None:
    x = current(*shape)
    results = []
    for call, owner in ((compiled, node), (eager, eager)):
        begin_batch(owner)
        leaf = x.clone().requires_grad_()
        spikes = call(leaf)
        loss = (spikes * x).sum() + owner.v.square().sum()
        results.append([spikes.detach(), owner.v.detach(), *torch.autograd.grad(loss, [leaf, *owner.parameters()])])
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, **tolerances.COMPILED)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *((kind, {}) for kind in KINDS),
        ("ParametricLIFNode", {"stateful": True, "store_v_seq": True}),
        ("LIFNode", {"step_mode": "s"}),
    ],
)
def test_forward_and_backward_in_one_graph(kind: str, options: dict[str, Any]) -> None:
    node = getattr(neurons, kind)(surrogate_function=surrogate.ATan(), v_reset=-0.1, **options)
    eager = copy.deepcopy(node)
    compiled = torch.compile(node, backend="aot_eager", fullgraph=True)
    for _ in range(2):
        _compare(compiled, node, eager, (3, 4, 5))


def test_alpha_may_change_between_calls() -> None:
    node = LIFNode()
    eager = copy.deepcopy(node)
    compiled = torch.compile(node, backend="aot_eager", fullgraph=True)
    for alpha in (4.0, 3.0, 7.0):
        node.surrogate_function.alpha = eager.surrogate_function.alpha = alpha
        _compare(compiled, node, eager, (3, 4, 5))


def test_state_of_inference_mode_serves_compiled_training() -> None:
    node = LIFNode(stateful=True)
    eager = copy.deepcopy(node)
    compiled = torch.compile(node, backend="aot_eager", fullgraph=True)
    x = current(3, 4, 5)
    with torch.inference_mode():
        assert torch.equal(compiled(x), eager(x))
    _compare(compiled, node, eager, (3, 4, 5))


@pytest.mark.parametrize("strict", [False, True])
def test_a_net_that_starts_from_rest_can_be_exported(strict: bool) -> None:
    net = nn.Sequential(nn.Linear(4, 5), LIFNode(), nn.Linear(5, 3), ParametricLIFNode()).eval()
    exported = torch.export.export(net, (current(3, 2, 4),), strict=strict).module()
    assert net[1].v == 0.0
    x = current(3, 2, 4)
    assert torch.equal(exported(x), net(x))
