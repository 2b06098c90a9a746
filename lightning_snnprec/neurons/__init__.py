"""Spiking neurons whose membrane keeps its own precision: modules, functional forms, surrogates, state of a net."""

from lightning_snnprec.neurons import surrogate
from lightning_snnprec.neurons.module import BaseNode, IFNode, LIFNode, ParametricLIFNode
from lightning_snnprec.neurons.params import NeuronPolicy, unsupported_policy
from lightning_snnprec.neurons.recompute import checkpoint_contexts
from lightning_snnprec.neurons.reference import (
    if_multi_step,
    if_step,
    lif_multi_step,
    lif_step,
    plif_multi_step,
    plif_step,
)
from lightning_snnprec.neurons.state import (
    begin_batch,
    carried_state,
    detach_net,
    load_carried_state,
    reset_net,
)

__all__ = [
    "BaseNode",
    "IFNode",
    "LIFNode",
    "NeuronPolicy",
    "ParametricLIFNode",
    "begin_batch",
    "carried_state",
    "checkpoint_contexts",
    "detach_net",
    "if_multi_step",
    "if_step",
    "lif_multi_step",
    "lif_step",
    "load_carried_state",
    "plif_multi_step",
    "plif_step",
    "reset_net",
    "surrogate",
    "unsupported_policy",
]
