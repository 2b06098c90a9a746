"""Surrogate slopes inside a Triton kernel, at u = h - v_threshold in FP32.

Each stays finite for every finite u, and gives 0 where its tail is below FP32. They take two numbers instead of alpha,
`SLOPE_NUMBERS` in `lightning_snnprec.kernels.switches` says which, so that no kernel is compiled anew for an alpha.
Rational slopes do their operations in the order of the plain torch formulas, so that both agree to the last bit where
the division is exact.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lightning_snnprec.kernels.switches import SURROGATES

SIGMOID = tl.constexpr(SURROGATES.index("sigmoid"))
ATAN = tl.constexpr(SURROGATES.index("atan"))
PIECEWISE_QUADRATIC = tl.constexpr(SURROGATES.index("piecewise_quadratic"))
PIECEWISE_EXP = tl.constexpr(SURROGATES.index("piecewise_exp"))
SOFT_SIGN = tl.constexpr(SURROGATES.index("soft_sign"))
SUPER_SPIKE = tl.constexpr(SURROGATES.index("super_spike"))
INTERPRETED = tl.constexpr(triton.knobs.runtime.interpret)


@triton.jit
def exp2(x):
    """2^x for x <= 0 in one instruction; below FP32's normal range it is 0."""
    if INTERPRETED:
        return tl.exp2(x)
    return tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)


@triton.jit
def reciprocal(x):
    """1 / x for x >= FP32's smallest normal number in one instruction, at most one ULP off."""
    if INTERPRETED:
        return 1.0 / x
    return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)


@triton.jit
def slope(u, a, b, SURROGATE: tl.constexpr):
    """Derivative of the surrogate numbered `SURROGATE` at u; a and b are its two numbers."""
    if SURROGATE == SIGMOID:
        # alpha s (1 - s), with s or 1 - s as 1 / (1 + e): nothing overflows, nothing cancels.
        e = exp2(tl.abs(u) * a)
        r = reciprocal(1.0 + e)
        return b * (e * r * r)
    if SURROGATE == ATAN:
        z = u * a
        return reciprocal(1.0 + z * z) * b
    if SURROGATE == PIECEWISE_QUADRATIC:
        return tl.maximum(b - a * tl.abs(u), 0.0, propagate_nan=tl.PropagateNan.ALL)
    if SURROGATE == PIECEWISE_EXP:
        return b * exp2(tl.abs(u) * a)
    if SURROGATE == SOFT_SIGN:
        z = a + tl.abs(u)
        return reciprocal(b * z * z)
    if SURROGATE == SUPER_SPIKE:
        z = a + tl.abs(u)
        return reciprocal(z * z) * b
    return b * exp2(u * u * a)
