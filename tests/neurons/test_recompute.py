"""A30: activation checkpointing of neurons that carry their membrane, and of neurons that do not."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lightning_snnprec.neurons import LIFNode, ParametricLIFNode, begin_batch, checkpoint_contexts, reset_net
from tests.neurons.cases import current


def _net(**options: Any) -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 5), LIFNode(**options), nn.Linear(5, 3), ParametricLIFNode(**options))


def _plain(net: nn.Module, x: Tensor) -> Tensor:
    return net(x)


def _checkpointed(net: nn.Module, x: Tensor) -> Tensor:
    return checkpoint(net, x, use_reentrant=False, context_fn=checkpoint_contexts(net))


def _train(net: nn.Module, batches: list[list[Tensor]], call: Callable[[nn.Module, Tensor], Tensor]) -> list[Tensor]:
    """Losses, gradients, and the state after some batches, each of several calls."""
    optimizer, losses = torch.optim.SGD(net.parameters(), lr=0.1), []
    for calls in batches:
        begin_batch(net)
        optimizer.zero_grad()
        loss = torch.stack([(call(net, x) - 0.3).square().mean() for x in calls]).sum() + net[3].v.mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [*losses, *(p.grad for p in net.parameters()), *net.parameters(), net[1].v, net[3].v]


@pytest.mark.parametrize("options", [{"stateful": True}, {"step_mode": "s"}, {"stateful": True, "step_mode": "s"}, {}])
def test_checkpointing_changes_nothing(options: dict[str, Any]) -> None:
    net = _net(**options, store_v_seq=True)
    twin = copy.deepcopy(net)
    shape = (2, 6, 4) if options.get("step_mode") != "s" else (6, 4)
    batches = [[current(*shape).requires_grad_() for _ in range(3)] for _ in range(3)]
    expected = _train(net, batches, _plain)
    found = _train(twin, batches, _checkpointed)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    assert torch.equal(twin[1].v_seq, net[1].v_seq)


def test_a_reset_before_backward_stays_a_reset() -> None:
    net, x = _net(step_mode="s"), current(6, 4)
    expected = torch.autograd.grad(net(x).sum(), net[0].weight)[0]
    reset_net(net)
    loss = _checkpointed(net, x).sum()
    reset_net(net)
    assert torch.equal(torch.autograd.grad(loss, net[0].weight, retain_graph=True)[0], expected)
    assert torch.equal(torch.autograd.grad(loss, net[0].weight)[0], expected)
    assert (net[1].v, net[3].v) == (0.0, 0.0)


@pytest.mark.parametrize("use_reentrant", [False, True])
@pytest.mark.parametrize("options", [{"stateful": True}, {"step_mode": "s"}])
def test_plain_checkpointing_of_carried_state_is_refused(options: dict[str, Any], use_reentrant: bool) -> None:
    net = _net(**options)
    x = current(2, 6, 4).requires_grad_() if "stateful" in options else current(6, 4).requires_grad_()
    loss = checkpoint(net, x, use_reentrant=use_reentrant).sum()
    with pytest.raises(RuntimeError, match=r"LIFNode carries its membrane.*checkpoint_contexts"):
        loss.backward()


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_neurons_that_start_from_rest_need_no_contexts(use_reentrant: bool) -> None:
    net, x = _net(), current(2, 6, 4).requires_grad_()
    expected = torch.autograd.grad(net(x).sum(), [x, *net.parameters()])
    loss = checkpoint(net, x, use_reentrant=use_reentrant).sum()
    loss.backward()
    found = [x.grad, *(p.grad for p in net.parameters())]
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
