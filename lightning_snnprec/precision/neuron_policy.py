"""The neuron side of a configuration: from `neuron_*` fields to the policy that neurons carry."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from lightning_snnprec.neurons.module import BaseNode
from lightning_snnprec.neurons.params import NeuronPolicy, unsupported_policy

if TYPE_CHECKING:
    from lightning_snnprec.precision.config import PrecisionConfig

_STORAGE = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
}


def neuron_policy(config: PrecisionConfig) -> NeuronPolicy | None:
    """The policy of every neuron, or None for FP32 state and the automatic kernel."""
    if config.neuron_storage is None:
        return None
    return NeuronPolicy(storage=_STORAGE[config.neuron_storage], forward=config.neuron_fwd, backward=config.neuron_bwd)


def policy_obstacle(policy: NeuronPolicy | None) -> str | None:
    """Why no neuron implementation can follow `policy`, as a sentence; None when one can."""
    return None if policy is None else unsupported_policy(policy)


def apply_neuron_policy(model: nn.Module, policy: NeuronPolicy | None) -> list[str]:
    """Sets the policy of every neuron of this package in `model`, in place; returns their names."""
    nodes = [(name, module) for name, module in model.named_modules() if isinstance(module, BaseNode)]
    for _, node in nodes:
        node.policy = policy
    return [name for name, _ in nodes]


def is_foreign_neuron(module: nn.Module) -> bool:
    """Whether a module is a spiking neuron of another library, which keeps its own precision."""
    package = type(module).__module__.partition(".")[0]
    return package in ("spikingjelly", "snntorch", "norse") and (
        "neuron" in type(module).__module__ or package != "spikingjelly"
    )
