"""Scaling per tensor: from the largest magnitude (amax) to a scale, and a tensor quantized with it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from lightning_snnprec.arguments import raise_faults
from lightning_snnprec.formats.rounding import RoundingMode, overflows, round_to
from lightning_snnprec.formats.scale import Scale, values_fault
from lightning_snnprec.formats.shapes import broadcasts_to
from lightning_snnprec.formats.spec import E8M0, FloatSpec

FLOAT32 = torch.finfo(torch.float32)
_SMALLEST = math.ldexp(1.0, -149)


@dataclass(frozen=True, eq=False)
class Quantized:
    """A tensor quantized with one scale (or scales that broadcast against it).

    Attributes:
        payload: FP32 of x's shape, on the grid of `scale.format`.
        scale: the scale, of meaning "encode".
        saturated: bool of x's shape: clipping, not rounding, decided the element (`overflows` of x * scale).
        restored: FP32, payload / scale.
    """

    payload: Tensor
    scale: Scale
    saturated: Tensor
    restored: Tensor


def amax_of(x: Tensor) -> Tensor:
    """Returns the largest magnitude of `x` as FP32 with 0 dimensions; NaN if x has one, 0 if x is empty."""
    if x.numel() == 0:
        return torch.zeros((), device=x.device)
    low, high = torch.aminmax(x.detach())
    return torch.maximum(-low, high).abs().float()


def scale_for(
    amax: Tensor, spec: FloatSpec, margin: int = 0, power_of_two: bool = False, *, validate: bool = True
) -> Tensor:
    """Returns the scale that takes `amax` to the largest value of `spec`, less `margin` powers of two.

    The formula is Transformer Engine's (`compute_scale_from_amax`): spec.max * 2**-margin / amax in FP32; where that
    overflows, the largest FP32 number (where it underflows, the smallest); where amax is 0, 1.

    Args:
        amax: largest magnitudes, FP32 of any shape.
        spec: the payload's format.
        margin: powers of two kept free above amax.
        power_of_two: clear the mantissa, that is, round down to a power of two.
        validate: look at the values, which waits for the device; False gives 1 where amax is Inf, NaN or negative.

    Returns:
        FP32 of amax's shape, finite and over 0.

    Raises:
        ValueError: a negative or non-finite amax, or a margin that is no int from -100 to 100.
    """
    raise_faults("scale_for", [margin_fault(margin)])
    amax = amax.detach().float()
    if validate:
        check_amax("scale_for", amax)
    scale = _ratio(amax, spec, margin)
    if power_of_two:
        scale = round_to(scale, E8M0, "toward_zero")
    return torch.where(amax.isfinite() & (amax > 0), scale, 1.0)


def _ratio(amax: Tensor, spec: FloatSpec, margin: int) -> Tensor:
    # The numerator is a tensor on the device: a division by the reciprocal would round twice.
    largest = torch.full_like(amax, spec.max * math.ldexp(1.0, -margin))
    return (largest / amax).clamp(_SMALLEST, FLOAT32.max)


def margin_fault(margin: object) -> str | None:
    """Says what is wrong when `margin` is not an int from -100 to 100; else None."""
    if isinstance(margin, int) and not isinstance(margin, bool) and -100 <= margin <= 100:
        return None
    return f"margin={margin!r}: needs an int from -100 to 100."


def check_amax(owner: str, amax: Tensor) -> None:
    """Raises `ValueError`, named after `owner`, if an amax is negative, Inf or NaN; waits for the device."""
    wrong = ~amax.isfinite() | (amax < 0)
    if bool(wrong.any()):
        found = sorted(set(amax[wrong].tolist()), key=str)[:4]
        raise ValueError(
            f"{owner}: {int(wrong.sum())} of {amax.numel()} amax values are negative or not finite ({found}): no scale "
            "fits them. Look for Inf and NaN in the tensor before it is quantized."
        )


def quantize_tensor(
    x: Tensor,
    spec: FloatSpec,
    scale: Tensor | Scale,
    mode: RoundingMode = "nearest",
    bits: Tensor | None = None,
    *,
    validate: bool = True,
) -> Quantized:
    """Quantizes `x` with a given scale: payload = round(x * scale), saturating, in FP32.

    Args:
        x: floating point tensor of any shape; it is taken to FP32 first.
        spec: the payload's format.
        scale: FP32 tensor that broadcasts to x's shape without enlarging it, or a `Scale` of that format.
        mode: rounding, see `round_to`.
        bits: random bits for stochastic rounding, see `round_to`.
        validate: check that the scale is finite and over 0, which waits for the device.

    Returns:
        Payload, scale, mask of saturated elements, and restored values. NaN stays NaN where the format has it.

    Raises:
        ValueError: a scale that is not FP32, does not fit x, is not finite and over 0, or belongs to another format.
    """
    record = scale if isinstance(scale, Scale) else Scale(scale, None, None, "given", spec.name)
    _check_scale(x, spec, record, validate=validate)
    values = record.values
    scaled = x.detach().float() * values
    payload = round_to(scaled, spec, mode, bits)
    return Quantized(payload, record, overflows(scaled, spec), payload / values)


def quantize_current(
    x: Tensor,
    spec: FloatSpec,
    mode: RoundingMode = "nearest",
    bits: Tensor | None = None,
    *,
    margin: int = 0,
    power_of_two: bool = False,
    validate: bool = True,
) -> Quantized:
    """Quantizes `x` with the scale of its own amax ("current" scaling); arguments as in the functions it joins.

    Raises:
        ValueError: x has Inf or NaN (unless `validate` is False: then the scale is 1), or a bad argument.
    """
    values = scale_for(amax_of(x), spec, margin, power_of_two, validate=validate)
    return quantize_tensor(x, spec, Scale(values, None, None, "current", spec.name), mode, bits, validate=False)


def _check_scale(x: Tensor, spec: FloatSpec, scale: Scale, *, validate: bool) -> None:
    raise_faults("quantize_tensor", [values_fault(scale.values), *_record_faults(spec, scale)])
    if not broadcasts_to(scale.values.shape, x.shape):
        found = f"{tuple(scale.values.shape)} against x of {tuple(x.shape)}"
        raise ValueError(f"quantize_tensor: the scale has shape {found}: needs one that broadcasts to x's shape.")
    if validate and not bool((scale.values.isfinite() & (scale.values > 0)).all()):
        raise ValueError("quantize_tensor: the scale has a value that is not finite and over 0; it would divide by it.")


def _record_faults(spec: FloatSpec, scale: Scale) -> list[str]:
    faults = []
    if scale.format != spec.name:
        faults.append(f"the scale was made for {scale.format}, but {spec.name} was asked: make one with `scale_for`.")
    if scale.meaning != "encode":
        faults.append("the scale restores (meaning 'decode'): a tensor is quantized with one of meaning 'encode'.")
    return faults
