"""What a checkpoint records of neurons beyond their Parameters: constants to compare, membrane state to restore."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from lightning_snnprec.neurons.module import BaseNode
from lightning_snnprec.neurons.state import carried_state, load_carried_state

_CONSTANTS = ("tau", "v_threshold", "v_reset", "decay_input", "detach_reset", "step_mode", "stateful")


def neuron_constants(model: nn.Module) -> dict[str, dict[str, Any]]:
    """Constants of every neuron by module name: `state_dict()` does not hold them, yet weights depend on them."""
    return {
        name: {key: getattr(node, key) for key in _CONSTANTS if hasattr(node, key)}
        for name, node in model.named_modules()
        if isinstance(node, BaseNode)
    }


def constant_changes(saved: dict[str, dict[str, Any]], model: nn.Module) -> list[str]:
    """Constants that differ from the saved ones, one sentence each; neurons that are only on one side are left out."""
    now = neuron_constants(model)
    return [
        f"{name}.{key} was {value!r} when saved and is {now[name][key]!r} now"
        for name, constants in saved.items()
        if name in now
        for key, value in constants.items()
        if key in now[name] and now[name][key] != value
    ]


def saved_membrane(model: nn.Module) -> dict[str, Tensor]:
    """Detached copies of the membrane that stateful neurons carry to the next batch, by module name."""
    stateful = {name for name, node in model.named_modules() if isinstance(node, BaseNode) and node.stateful}
    return {name: v.detach().clone() for name, v in carried_state(model).items() if name in stateful}


def restore_membrane(model: nn.Module, saved: dict[str, Tensor], device: Any) -> None:
    """Puts carried membrane back on a device; neurons without a saved one are put at rest.

    Membrane of a neuron that is gone, or that carries nothing any more, is dropped: `constant_changes` tells of it.
    """
    carrying = {name for name, node in model.named_modules() if isinstance(node, BaseNode) and node.stateful}
    load_carried_state(model, {name: v.to(device) for name, v in saved.items() if name in carrying})
