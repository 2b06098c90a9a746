"""Block formats in numpy and ml_dtypes alone: an oracle that shares no line with the package."""

from __future__ import annotations

from typing import NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]
F32 = np.float32


class Blocks(NamedTuple):
    payload: Array
    scale: Array
    restored: Array
    tensor_scale: np.float32 | None = None


def cast(x: Array, kind: type, largest: float) -> Array:
    return np.clip(x, F32(-largest), F32(largest)).astype(kind).astype(F32)


def block_amax(x: Array, rows: int, cols: int) -> Array:
    """One value per element: that of its block."""
    out = np.empty_like(x)
    for top in range(0, x.shape[0], rows):
        for left in range(0, x.shape[1], cols):
            piece = np.s_[top : top + rows, left : left + cols]
            out[piece] = np.abs(x[piece]).max()
    return out


def fp8_blocks(x: Array, rows: int, cols: int) -> Blocks:
    amax = block_amax(x, rows, cols)
    with np.errstate(all="ignore"):
        scale = np.minimum(F32(448) / amax, np.finfo(F32).max)
    scale = (scale.view(np.uint32) & np.uint32(0xFF800000)).view(F32)
    scale = np.where(amax == 0, F32(1), scale)
    payload = cast(x * scale, ml_dtypes.float8_e4m3fn, 448)
    with np.errstate(over="ignore"):
        return Blocks(payload, 1 / scale, payload / scale)


def e8m0_up(x: Array) -> Array:
    """Transformer Engine's `float_to_e8m0`, on the bits."""
    bits = x.view(np.uint32)
    exponent, mantissa = bits >> 23, bits & 0x7FFFFF
    up = (mantissa > 0) & (exponent != 0xFE) & ~((exponent == 0) & (mantissa <= 0x400000))
    return (exponent + up).astype(np.uint8).view(ml_dtypes.float8_e8m0fnu).astype(F32)


def e8m0_floor(amax: Array, emax: int) -> Array:
    """OCP MX 1.0, 6.3, in exact arithmetic."""
    _, exponent = np.frexp(amax.astype(np.float64))
    power = np.where(amax == 0, -127, np.clip(exponent - 1 - emax, -127, 127))
    return np.exp2(power.astype(np.float64)).astype(F32)


def mx_blocks(x: Array, cols: int, kind: type, largest: float, floor_emax: int | None = None) -> Blocks:
    amax = block_amax(x, 1, cols)
    scale = e8m0_up(amax * F32(1 / largest)) if floor_emax is None else e8m0_floor(amax, floor_emax)
    with np.errstate(over="ignore", under="ignore"):
        payload = cast(x / scale, kind, largest)
        return Blocks(payload, scale, payload * scale)


def nvfp4_blocks(x: Array, rows: int) -> Blocks:
    with np.errstate(all="ignore"):
        most = np.abs(x).max()
        encode_all = F32(1) if most == 0 else min(F32(448 * 6) / most, np.finfo(F32).max)
        decode_all = F32(1) / encode_all
        stored = cast(block_amax(x, rows, 16) * (encode_all * F32(1 / 6)), ml_dtypes.float8_e4m3fn, 448)
        encode = np.minimum(F32(1) / (stored * decode_all), np.finfo(F32).max)
        payload = cast(x * encode, ml_dtypes.float4_e2m1fn, 6)
        return Blocks(payload, stored, payload * stored * decode_all, decode_all)
