"""Rounding to a format: a pure function of the values, the mode and, if stochastic, the random bits.

What happens to special values, by the format:

| input            | FP16 BF16 TF32 FP32 E5M2 | E4M3          | E2M1 | E8M0                   |
|------------------|--------------------------|---------------|------|------------------------|
| NaN              | NaN                      | NaN           | +6   | NaN                    |
| overflow         | ±max, or ±Inf            | ±max, or NaN  | ±6   | 2**127, or NaN         |
| +Inf, -Inf       | ±max, or ±Inf            | ±max, or NaN  | ±6   | 2**127 or NaN, NaN     |
| ±0               | ±0                       | ±0            | ±0   | 2**-127                |
| too small        | ±0 or ±min_subnormal     | same          | same | 2**-127                |
| negative         | negative                 | negative      | same | NaN                    |

"or" stands between saturating and not. Overflow is IEEE 754's: the value rounded with unbounded exponent exceeds max,
so E4M3 takes 464, the tie above 448, to 448, while E5M2 takes 61440 over the limit. Toward zero, finite values never
overflow. E2M1's NaN follows PTX `cvt.rn.satfinite.e2m1x2`; E8M0's negative follows ml_dtypes, its zero torch. In E8M0
ties go up, and "nearest" takes all between the two smallest values, 2**-127 and 2**-126, up: both libraries do.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from lightning_snnprec.arguments import choice_fault, raise_faults
from lightning_snnprec.formats.spec import FloatSpec, codes

RoundingMode = Literal["nearest", "toward_zero", "stochastic"]

RANDOM_BITS = 24
"""How many random bits stochastic rounding uses per element."""

# Small enough that a chunk and its temporaries stay in a core's L2 cache, large enough to hide the cost of a call.
_CHUNK = 1 << 16

_EXPONENT_MASK = {torch.float32: 0x7F800000, torch.float64: 0x7FF0000000000000}
_INT = {torch.float32: torch.int32, torch.float64: torch.int64}


@torch.no_grad()
def round_to(
    x: Tensor, spec: FloatSpec, mode: RoundingMode = "nearest", bits: Tensor | None = None, saturate: bool = True
) -> Tensor:
    """Rounds every element to a value of `spec`, once, from the exact input; no gradient flows.

    Stochastic rounding takes the neighbour away from zero with probability f, the distance to the one toward zero in
    units of the spacing: it does so where floor(f * 2**24) + bits >= 2**24. Over all 2**24 random values the mean is
    exactly x where f is a multiple of 2**-24, which holds for every FP32 number in the format's normal range; else it
    is short of x by less than 2**-24 of the spacing. The same bits give the same result, and -x gives the negative.

    Args:
        x: floating point tensor of any shape; FP64 is rounded from FP64, all else from FP32.
        spec: the target format.
        mode: "nearest" (ties to even; in E8M0 the tie goes up), "toward_zero" or "stochastic".
        bits: for "stochastic" only: int32 or int64 of x's shape, of which the low 24 bits are used, uniform.
        saturate: overflow gives the largest finite value; else ±Inf or NaN, as the format has it (module table).

    Returns:
        The rounded values, contiguous, x's shape, FP64 for FP64 x and FP32 otherwise.

    Raises:
        ValueError: x is not floating point, a bad mode, or bits that are missing, superfluous or of a wrong shape or
            dtype.
    """
    _check(x, mode, bits)
    source = x.detach().to(x.dtype if x.dtype == torch.float64 else torch.float32).contiguous()
    out = torch.empty_like(source)
    size = _CHUNK if x.device.type == "cpu" else max(source.numel(), 1)
    sources, outs = torch.split(source.view(-1), size), torch.split(out.view(-1), size)
    randoms = [None] * len(sources) if bits is None else torch.split(bits.to(x.device).reshape(-1), size)
    for piece, target, random in zip(sources, outs, randoms, strict=True):
        _round_piece(piece, target, spec, mode, random, saturate)
    return out


def overflows(x: Tensor, spec: FloatSpec) -> Tensor:
    """Says where rounding to nearest overflows `spec` (IEEE 754, 7.4): clipping, not rounding, decides the result.

    Args:
        x: FP32 or FP64 tensor, already scaled.
        spec: the target format.

    Returns:
        Bool tensor of x's shape; true for ±Inf; for NaN only where the format has no NaN.
    """
    x = x.detach()
    limit = spec.max + math.ldexp(spec.eps, spec.max_exponent - 1)
    if limit > torch.finfo(x.dtype).max:
        limit = math.inf
    # Two comparisons, since |x| would be a temporary as large as x.
    over = (x > limit) | (x < -limit) if spec.max_is_even else (x >= limit) | (x <= -limit)
    return over | x.isnan() if spec.nan == "none" else over


def spacing(x: Tensor, spec: FloatSpec) -> Tensor:
    """Returns the distance of neighbours in `spec` at each |x|: that of subnormals under min_normal, of max over max.

    Args:
        x: FP32 or FP64 tensor; FP32 only for formats of fewer than 8 exponent bits.
        spec: the format.

    Returns:
        Powers of two, of x's shape and dtype; for NaN as for Inf.
    """
    power = (x.view(_INT[x.dtype]) & _EXPONENT_MASK[x.dtype]).view(x.dtype)
    return power.clamp_(spec.min_normal, math.ldexp(1.0, spec.max_exponent)).mul_(spec.eps)


def random_bits(x: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Draws the random bits that stochastic rounding of `x` needs: int32 in [0, 2**24), x's shape and device."""
    return torch.randint(0, 1 << RANDOM_BITS, x.shape, generator=generator, dtype=torch.int32, device=x.device)


def encode(x: Tensor, spec: FloatSpec) -> Tensor:
    """Returns the codes of `x` in a format of at most 8 bits.

    Values of the format, Inf and NaN included, get their own code (NaN the one of all ones, with its sign); others
    are rounded to nearest, and finite ones saturate.

    Args:
        x: floating point tensor of any shape.
        spec: a format of at most 8 bits.

    Returns:
        uint8 of x's shape; formats under 8 bits use the low bits.

    Raises:
        ValueError: the format is wider than 8 bits, or x is not floating point.
    """
    table = codes(spec)[: 2 ** (spec.bits - int(spec.signed))].to(x.device)
    numbers = table[~table.isnan()]
    kept = torch.where(x.isinf(), x, round_to(x, spec)) if spec.has_inf else round_to(x, spec)
    magnitude = torch.searchsorted(numbers, kept.abs().float().nan_to_num(nan=0.0, posinf=math.inf))
    code = torch.where(kept.isnan(), len(table) - 1, magnitude)
    if spec.signed:
        code = code + (torch.signbit(kept).long() << (spec.bits - 1))
    return code.to(torch.uint8)


def decode(code: Tensor, spec: FloatSpec) -> Tensor:
    """Returns the FP32 values that `code` (uint8, any shape) means in a format of at most 8 bits.

    Raises:
        ValueError: the format is wider than 8 bits, or the codes are not uint8.
    """
    if code.dtype != torch.uint8:
        raise ValueError(f"decode: codes of {spec.name} must be uint8; got {code.dtype}.")
    return codes(spec).to(code.device)[code.long()]


def _check(x: Tensor, mode: RoundingMode, bits: Tensor | None) -> None:
    faults = [choice_fault("mode", mode, get_args(RoundingMode))]
    if not x.is_floating_point():
        faults.append(f"x has dtype {x.dtype}: needs a floating point tensor.")
    if (bits is not None) != (mode == "stochastic"):
        state = "missing" if bits is None else "given"
        faults.append(f"mode={mode!r} with bits {state}: 'stochastic' needs them, and no other mode takes them.")
    elif bits is not None and (bits.shape != x.shape or bits.dtype not in (torch.int32, torch.int64)):
        found = f"{bits.dtype}, {tuple(bits.shape)}"
        faults.append(f"bits has {found}: needs int32 or int64 of x's shape {tuple(x.shape)}.")
    raise_faults("round_to", faults)


def _round_piece(
    x: Tensor, out: Tensor, spec: FloatSpec, mode: RoundingMode, bits: Tensor | None, saturate: bool
) -> None:
    # FP32 has no room for the spacing of formats that share its exponent range: FP64 carries those.
    if spec.exponent_bits >= 8 and x.dtype == torch.float32:
        wide = x.double()
        _round_carried(wide, wide_out := torch.empty_like(wide), spec, mode, bits, saturate)
        out.copy_(wide_out)
    else:
        _round_carried(x, out, spec, mode, bits, saturate)


def _round_carried(
    x: Tensor, out: Tensor, spec: FloatSpec, mode: RoundingMode, bits: Tensor | None, saturate: bool
) -> None:
    step = spacing(x, spec)
    # Exact: the step is a power of two, and neither the quotient nor the product leaves the carrier's range.
    torch.div(x, step, out=out)
    if bits is not None:
        _round_stochastic_(out, bits)
    elif mode == "nearest":
        out.round_()
    else:
        out.trunc_()
    out.mul_(step)
    if saturate:
        out.clamp_(-spec.max, spec.max)
    else:
        _overflow_(out, x, spec, mode)
    if spec.nan == "none":
        out.nan_to_num_(nan=spec.max)
    if not spec.signed:
        out.clamp_(min=spec.min_normal).masked_fill_(x < 0, math.nan)
    if not spec.has_zero and mode == "nearest":
        lowest = spec.min_normal
        out.masked_fill_((x > lowest) & (x < 2 * lowest), 2 * lowest)


def _round_stochastic_(quotient: Tensor, bits: Tensor) -> None:
    one = 1 << RANDOM_BITS
    floor = quotient.trunc()
    # Both sides of the comparison are exact: f has at most the carrier's bits, and the bound is an integer <= 2**24.
    fraction = (quotient - floor).abs_().mul_(one)
    up = fraction >= (one - (bits & (one - 1))).to(quotient.dtype)
    torch.add(floor, up.to(quotient.dtype).copysign_(quotient), out=quotient)


def _overflow_(out: Tensor, x: Tensor, spec: FloatSpec, mode: RoundingMode) -> None:
    over = x.isinf() if mode == "toward_zero" else out.abs() > spec.max
    beyond = math.inf if spec.has_inf else math.nan
    filler = torch.full_like(out, spec.max if spec.nan == "none" else beyond).copysign_(out)
    torch.where(over, filler, out.clamp(-spec.max, spec.max), out=out)
