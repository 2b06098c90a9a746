"""Inputs that are no floats of a layer's dtype: bool spikes, uint8 frame counts, float64 arrays.

A batch does not say which of its integer tensors are spikes and which are labels, token ids or masks; the layer that
multiplies one by a weight does. So the cast is done there, once, by a forward pre-hook that costs one test when
nothing is to be cast.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lightning_snnprec.precision.obstacles import has_gemm


def add_input_casts(model: nn.Module) -> None:
    """Lets every GEMM layer of a model take bool, integer and float64 input; adding twice changes nothing."""
    for module in model.modules():
        if has_gemm(module) and not has_input_cast(module):
            module.register_forward_pre_hook(cast_input)


def remove_input_casts(model: nn.Module) -> None:
    """Takes the hooks of `add_input_casts` off again."""
    for module in model.modules():
        for key in [key for key, hook in module._forward_pre_hooks.items() if hook is cast_input]:
            del module._forward_pre_hooks[key]


def has_input_cast(module: nn.Module) -> bool:
    """Whether `add_input_casts` went over this module."""
    return any(hook is cast_input for hook in module._forward_pre_hooks.values())


def cast_input(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Forward pre-hook: bool, integer and (for a narrower weight) float64 input in the weight's dtype.

    Values beyond the weight dtype's exact integers (2**24 for float32) round to nearest. A layer whose weight is
    computed (parametrized) is left to the user.
    """
    x = args[0] if args else None
    if not isinstance(x, Tensor) or x.is_complex() or (x.is_floating_point() and x.dtype is not torch.float64):
        return None
    weight = module._parameters.get("weight")
    if weight is None or weight.dtype is x.dtype:
        return None
    return (x.to(weight.dtype), *args[1:])
