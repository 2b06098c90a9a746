"""Reference forms of the sensitive reductions: computed in FP32, whatever the input's dtype, and never rounded back.

The input is taken to FP32 (FP64 stays FP64), and the result has that dtype; the caller rounds it if need be. A NaN in
a row, unless masked, makes the whole row NaN. `keep` is a bool mask that broadcasts to x: True takes part.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lightning_snnprec.arguments import number_fault, raise_faults
from lightning_snnprec.formats.rounding import round_to
from lightning_snnprec.formats.shapes import broadcasts_to
from lightning_snnprec.formats.spec import E8M0


def softmax(x: Tensor, dim: int = -1, keep: Tensor | None = None) -> Tensor:
    """Returns exp(x - max) / sum exp(x - max) along `dim`.

    A row that is wholly masked, or wholly -Inf, gives zeros: it attends to nothing. A +Inf in a row gives NaN.

    Args:
        x: floating point tensor of any shape.
        dim: the reduced dimension.
        keep: bool mask; masked elements get 0.

    Returns:
        FP32 (FP64 for FP64 x) of x's shape; rows sum to 1, or to 0 if wholly masked.

    Raises:
        ValueError: x is not floating point, or `keep` is no bool mask that broadcasts to x's shape.
    """
    shifted, _ = _shifted("softmax", x, dim, keep)
    powers = shifted.exp()
    total = powers.sum(dim, keepdim=True)
    return powers / torch.where(total == 0, 1.0, total)


def logsumexp(x: Tensor, dim: int = -1, keep: Tensor | None = None) -> Tensor:
    """Returns max + log(sum exp(x - max)) along `dim`, which is dropped.

    A row that is wholly masked, or wholly -Inf, gives -Inf; a +Inf in a row gives +Inf. Arguments, dtype and errors
    as for `softmax`.
    """
    shifted, most = _shifted("logsumexp", x, dim, keep)
    most = most.squeeze(dim)
    return torch.where(most == math.inf, most, most + shifted.exp().sum(dim).log())


def rmsnorm(x: Tensor, weight: Tensor | None = None, eps: float = 1e-6, dim: int = -1) -> Tensor:
    """Returns x / sqrt(mean(x**2) + eps) along `dim`, times `weight` (Zhang & Sennrich 2019).

    Rows with elements over 1 are divided by a power of two first, which is exact and keeps every finite x from
    overflowing. A row of zeros gives zeros; an Inf gives NaN, and zeros in the rest of its row.

    Args:
        x: floating point tensor of any shape.
        weight: gains of one row, multiplied in the result's dtype; None for 1.
        eps: a finite number over 0.
        dim: the reduced dimension.

    Returns:
        FP32 (FP64 for FP64 x) of x's shape.

    Raises:
        ValueError: x is not floating point, a bad eps, or a weight that does not fit.
    """
    raise_faults("rmsnorm", [number_fault("eps", eps, above=0.0), _dtype_fault(x)])
    wide = _wide(x)
    if weight is not None and weight.shape != (x.shape[dim],):
        raise ValueError(f"rmsnorm: weight has shape {tuple(weight.shape)}; a row has {x.shape[dim]} elements.")
    unit = round_to(wide.abs().amax(dim, keepdim=True), E8M0, "toward_zero").clamp(min=1.0)
    small = wide / unit
    normed = small / (small.square().mean(dim, keepdim=True) + eps / unit.square()).sqrt()
    if weight is None:
        return normed
    shape = [1] * x.dim()
    shape[dim] = -1
    return normed * weight.to(normed.dtype).view(shape)


def _shifted(name: str, x: Tensor, dim: int, keep: Tensor | None) -> tuple[Tensor, Tensor]:
    """Returns x less its row's maximum, with masked elements -Inf, and that maximum; a row of -Inf stays so."""
    raise_faults(name, [_dtype_fault(x), _mask_fault(x, keep)])
    wide = _wide(x)
    if keep is not None:
        wide = wide.masked_fill(~keep, -math.inf)
    most = wide.amax(dim, keepdim=True)
    return wide - torch.where(most == -math.inf, 0.0, most), most


def _wide(x: Tensor) -> Tensor:
    return x.to(x.dtype if x.dtype == torch.float64 else torch.float32)


def _dtype_fault(x: Tensor) -> str | None:
    return None if x.is_floating_point() else f"x has dtype {x.dtype}: needs a floating point tensor."


def _mask_fault(x: Tensor, keep: Tensor | None) -> str | None:
    if keep is None:
        return None
    if keep.dtype == torch.bool and broadcasts_to(keep.shape, x.shape):
        return None
    return f"keep has {keep.dtype}, {tuple(keep.shape)}: needs bool that broadcasts to {tuple(x.shape)}."
