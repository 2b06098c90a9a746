"""A norm whose output goes straight into a converted Linear: the cast reads the norm's FP32 result, not its rounding.

A fused LayerNorm-Linear kernel normalises in FP32 and casts to FP8 in the same pass. With the norm rounded to BF16 in
between, the operand would be rounded twice.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

_UNROUNDED = "_snnprec_unrounded"


class WideLayerNorm(nn.LayerNorm):
    """`nn.LayerNorm` that computes and returns FP32 whatever autocast says."""

    def forward(self, input: Tensor) -> Tensor:
        """Output of input's shape, FP32, marked for the Linear that follows."""
        weight, bias = (None if p is None else p.float() for p in (self.weight, self.bias))
        with torch.autocast(input.device.type, enabled=False):
            return _marked(F.layer_norm(input.float(), self.normalized_shape, weight, bias, self.eps))


class WideRMSNorm(nn.RMSNorm):
    """`nn.RMSNorm` that computes and returns FP32 whatever autocast says."""

    def forward(self, x: Tensor) -> Tensor:
        """Output of x's shape, FP32, marked for the Linear that follows."""
        weight = None if self.weight is None else self.weight.float()
        with torch.autocast(x.device.type, enabled=False):
            return _marked(F.rms_norm(x.float(), list(self.normalized_shape), weight, self.eps))


NORMS: dict[type[nn.Module], type[nn.Module]] = {nn.LayerNorm: WideLayerNorm, nn.RMSNorm: WideRMSNorm}
"""Exact type -> the class that a norm before a converted Linear becomes."""


_EITHER = {*NORMS, *NORMS.values()}


def is_unrounded(x: Tensor) -> bool:
    """Whether `x` is the FP32 output of a norm that belongs to the Linear it goes into."""
    return bool(getattr(x, _UNROUNDED, False))


def norms_before_linears(model: nn.Module) -> dict[nn.Module, nn.Module]:
    """Norms without hooks that stand right before an `nn.Linear` in an `nn.Sequential`: norm -> that Linear."""
    found: dict[nn.Module, nn.Module] = {}
    for parent in model.modules():
        if isinstance(parent, nn.Sequential):
            found |= {
                first: second
                for first, second in pairwise(parent)
                if type(first) in _EITHER and isinstance(second, nn.Linear) and not _has_hooks(first)
            }
    return found


def _marked(x: Tensor) -> Tensor:
    setattr(x, _UNROUNDED, True)
    return x


def _has_hooks(module: nn.Module) -> bool:
    return bool(
        module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
    )
