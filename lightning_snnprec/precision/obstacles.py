"""Why a GEMM layer must not be converted: everything that would make conversion change what a model means."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from lightning_snnprec.precision.layers import CONVERTED, plain_type

_GEMM_BASES = (nn.Linear, nn.modules.conv._ConvNd, nn.Bilinear)
_FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def has_gemm(module: nn.Module) -> bool:
    """Whether a module itself multiplies by a weight matrix or filter."""
    return isinstance(module, _GEMM_BASES)


def obstacle(module: nn.Module, readers: dict[nn.Module, str]) -> str | None:
    """Why a layer with a GEMM is left as it is, or None when it can be converted.

    Args:
        module: a module for which `has_gemm` holds.
        readers: what `foreign_readers` found in the whole model.
    """
    kind = plain_type(module)
    if kind not in CONVERTED:
        return _other_type(module)
    if "forward" in module.__dict__:
        return "its forward was replaced on the instance"
    if module._parameters.get("weight") is None:
        return "its weight is computed (weight or spectral norm), not a Parameter of its own"
    weight = module._parameters["weight"]
    assert weight is not None
    if weight.dtype not in _FLOATS:
        return f"its weight is {_name(weight.dtype)}; FP8 casts start from float32, bfloat16 or float16"
    if weight.numel() == 0:
        return "its weight is empty"
    if isinstance(module, nn.Conv1d) and not _is_pointwise(module):
        return "only pointwise Conv1d (kernel 1, stride 1, no padding, groups 1) is one GEMM"
    return readers.get(module)


def foreign_readers(model: nn.Module) -> dict[nn.Module, str]:
    """Convertible layers whose weight something else reads past their forward, and what that is."""
    found: dict[nn.Module, str] = {}
    for name, parent in model.named_modules():
        for child in _read_directly(parent):
            found[child] = f"{name or 'the root'} ({type(parent).__name__}) reads its weight without calling it"
    owners: dict[nn.Parameter, list[tuple[str, nn.Module]]] = {}
    for name, module in model.named_modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                owners.setdefault(parameter, []).append((name, module))
    for sharing in owners.values():
        others = [(name, module) for name, module in sharing if plain_type(module) not in CONVERTED]
        for _, module in sharing if others and len(sharing) > 1 else ():
            if plain_type(module) in CONVERTED:
                name, other = others[0]
                found.setdefault(
                    module,
                    f"it shares a Parameter with {name or 'the root'} ({type(other).__name__}), "
                    "which reads it directly",
                )
    return found


def _read_directly(parent: nn.Module) -> Iterator[nn.Module]:
    if isinstance(parent, nn.TransformerEncoderLayer):
        yield from (parent.linear1, parent.linear2)
    elif isinstance(parent, nn.MultiheadAttention):
        yield parent.out_proj


def _other_type(module: nn.Module) -> str:
    if nn.utils.parametrize.is_parametrized(module):
        return "it is parametrized"
    bases = [base.__name__ for base in CONVERTED if isinstance(module, base)]
    if bases:
        return f"it is a subclass of {bases[0]}; only the exact type is converted"
    return "no FP8 engine computes this kind of layer"


def _is_pointwise(conv: nn.Conv1d) -> bool:
    ones = (1,)
    return (
        conv.kernel_size == conv.stride == conv.dilation == ones
        and conv.groups == 1
        and conv.padding in (0, (0,), "valid", "same")
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
