from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from lightning_snnprec.neurons import (
    IFNode,
    LIFNode,
    begin_batch,
    carried_state,
    detach_net,
    load_carried_state,
    reset_net,
)
from tests.neurons.cases import current


class Foreign(nn.Module):
    """Of SpikingJelly's kind: memories in a dict, and a reset."""

    def __init__(self) -> None:
        super().__init__()
        self._memories = {"v": 0.0, "count": 3}

    def reset(self) -> None:
        self._memories["v"] = 0.0


class Resettable(nn.Module):
    """Not of that kind: its reset is its own affair."""

    def reset(self) -> None:
        raise AssertionError("not a neuron")


def _net() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(4, 5),
        LIFNode(stateful=True),
        nn.Sequential(IFNode(v_reset=-0.1)),
        LIFNode(stateful=True, v_reset=None),
    )


def test_reset_net_puts_all_at_rest_and_touches_nothing_else() -> None:
    net = nn.Sequential(_net(), Resettable())
    net[0](current(3, 2, 4))
    reset_net(net)
    assert [net[0][1].v, net[0][2][0].v, net[0][3].v] == [0.0, -0.1, 0.0]
    node = IFNode(step_mode="s")
    node(torch.ones(3) / 2)
    reset_net(node)
    assert node.v == 0.0


def test_begin_batch_keeps_only_the_stateful_without_graph() -> None:
    net = _net()
    net(current(3, 2, 4))
    before = net[1].v, net[3].v
    assert before[0].requires_grad
    begin_batch(net)
    assert torch.equal(net[1].v, before[0])
    assert torch.equal(net[3].v, before[1])
    assert not net[1].v.requires_grad
    assert before[0].requires_grad
    assert net[2][0].v == -0.1


def test_foreign_modules_are_found_by_their_shape() -> None:
    net, memory = nn.Sequential(Foreign()), torch.ones(2, requires_grad=True) * 2
    for ready in (reset_net, begin_batch):
        net[0]._memories["v"] = memory
        ready(net)
        assert net[0]._memories == {"v": 0.0, "count": 3}
    net[0]._memories["v"] = memory
    detach_net(net)
    assert not net[0]._memories["v"].requires_grad
    assert torch.equal(net[0]._memories["v"], memory)
    assert memory.requires_grad


def test_carried_state_is_a_view_by_module_name() -> None:
    net = _net()
    assert carried_state(net) == {}
    net(current(3, 2, 4))
    state = carried_state(net)
    assert list(state) == ["1", "3"]
    assert all(v.data_ptr() == net[int(name)].v.data_ptr() and not v.requires_grad for name, v in state.items())
    single = IFNode(step_mode="s")
    single(torch.ones(2))
    assert list(carried_state(single)) == [""]


def test_evaluation_between_batches_leaves_training_state_as_it_was() -> None:
    net = _net()
    undisturbed = copy.deepcopy(net)
    for x in current(3, 3, 2, 4):
        begin_batch(net)
        begin_batch(undisturbed)
        assert torch.equal(net(x), undisturbed(x))
        training = carried_state(net)
        with torch.inference_mode():
            load_carried_state(net, {})
            assert net[1].v == 0.0
            net(current(2, 7, 4))
        load_carried_state(net, training)
        assert torch.equal(net[1].v, undisturbed[1].v)


def test_state_comes_back_in_another_net_and_the_rest_is_at_rest() -> None:
    net, x = _net(), current(3, 2, 4)
    net(x)
    other = _net()
    other.load_state_dict(net.state_dict())
    other(current(3, 9, 4))
    load_carried_state(other, {"3": carried_state(net)["3"].clone()})
    assert other[1].v == 0.0
    assert torch.equal(other[3].v, net[3].v)
    net[1].reset()
    assert torch.equal(other(x), net(x))


def test_state_of_another_dtype_is_cast() -> None:
    node = LIFNode(stateful=True)
    load_carried_state(node, {"": torch.ones(2, 3, dtype=torch.float64)})
    node(torch.zeros(1, 2, 3, dtype=torch.bfloat16))
    assert node.v.dtype == torch.float32
    assert torch.equal(node.v, torch.full((2, 3), 0.5))


def test_unknown_names_and_stateless_neurons_are_refused_before_any_change() -> None:
    net = _net()
    net(current(3, 2, 4))
    before = carried_state(net)
    with pytest.raises(ValueError, match=r"carried state for '7.node', which is no neuron.*'1', '2.0', '3'"):
        load_carried_state(net, {"7.node": torch.zeros(2)})
    with pytest.raises(ValueError, match=r"'2.0', which would be ignored.*stateful=True"):
        load_carried_state(net, {"2.0": torch.zeros(2, 5)})
    with pytest.raises(ValueError, match="its neurons are none"):
        load_carried_state(nn.Linear(2, 2), {"x": torch.zeros(2)})
    assert all(torch.equal(before[name], v) for name, v in carried_state(net).items())
