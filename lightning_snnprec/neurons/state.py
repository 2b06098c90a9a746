"""The state of a whole net: reset, start of a batch, detaching, and what is carried, as plain tensors.

SpikingJelly's modules, and others of that kind (a `reset()` method and a dict `_memories`), are treated as ours
where it says so; that library is not needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol, TypeGuard

from torch import Tensor, nn

from lightning_snnprec.neurons.base import BaseNode


class _Foreign(Protocol):
    """A module with memories that is not ours."""

    _memories: dict[str, Any]

    def reset(self) -> None: ...


def reset_net(net: nn.Module) -> None:
    """Puts every neuron in `net` at rest, ours and foreign ones; graphs that wait for their backward still work."""
    for module in net.modules():
        if isinstance(module, BaseNode) or _is_foreign(module):
            module.reset()


def begin_batch(net: nn.Module) -> None:
    """Readies `net` for the next batch.

    Neurons with `stateful=True` keep their membrane without its graph; all others, and foreign ones, are put at rest.
    """
    for module in net.modules():
        if isinstance(module, BaseNode):
            module.begin_batch()
        elif _is_foreign(module):
            module.reset()


def detach_net(net: nn.Module) -> None:
    """Cuts the membrane of every neuron in `net` from its graph and keeps the values; ours and foreign ones."""
    for module in net.modules():
        if isinstance(module, BaseNode):
            module.detach()
        elif _is_foreign(module):
            tensors = {name: v for name, v in module._memories.items() if isinstance(v, Tensor)}
            module._memories.update({name: v.detach() for name, v in tensors.items()})


def carried_state(net: nn.Module) -> dict[str, Tensor]:
    """The membranes that the next forward would start from, by module name; ours only.

    The tensors are detached and share storage with the live ones, which are replaced, never written to; so this
    is a snapshot that `load_carried_state` can put back. Neurons at rest, and those that start every forward from
    rest, are left out.
    """
    nodes = _named_nodes(net)
    return {name: node.v.detach() for name, node in nodes if node.carries and isinstance(node.v, Tensor)}


def load_carried_state(net: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Puts back what `carried_state` gave; neurons of ours that `state` does not list are put at rest.

    Device and dtype are adapted at the next forward, which also checks the shape against its input.

    Raises:
        ValueError: `state` names something that is no neuron of `net`, or one that carries nothing; the net is
            left as it was.
    """
    nodes = dict(_named_nodes(net))
    if unknown := [name for name in state if name not in nodes]:
        raise ValueError(
            f"carried state for {', '.join(map(repr, unknown))}, which is no neuron of this net; "
            f"its neurons are {', '.join(map(repr, nodes)) or 'none'}."
        )
    if stateless := [name for name in state if not nodes[name].carries]:
        raise ValueError(
            f"carried state for {', '.join(map(repr, stateless))}, which would be ignored: every forward starts from "
            "rest there. Make it with stateful=True or step_mode='s', or leave its state out."
        )
    for name, node in nodes.items():
        node.reset()
        node.v = state.get(name, node.v)


def _named_nodes(net: nn.Module) -> Iterator[tuple[str, BaseNode]]:
    return ((name, module) for name, module in net.named_modules() if isinstance(module, BaseNode))


def _is_foreign(module: object) -> TypeGuard[_Foreign]:
    return callable(getattr(module, "reset", None)) and isinstance(getattr(module, "_memories", None), dict)
