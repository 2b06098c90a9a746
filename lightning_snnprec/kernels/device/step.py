"""One time step of a neuron inside a Triton kernel, in FP32: what forward and backward share.

Forward and backward both go through `charge` and `reset`, with FMA contraction off at launch, so that a membrane that
backward recomputes is the forward's to the last bit.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lightning_snnprec.kernels import switches

SOFT = tl.constexpr(switches.SOFT)
HARD_TO_ZERO = tl.constexpr(switches.HARD_TO_ZERO)
HARD = tl.constexpr(switches.HARD)
LARGEST_FP16 = tl.constexpr(65504.0)
INFINITY_BITS = tl.constexpr(0x7F800000)


@triton.jit
def load_steps(at, step, inside, left, SEGMENT: tl.constexpr, WHOLE: tl.constexpr):
    """The rows of a segment as a tuple, all in flight together; those from `left` on, if any, are zeros."""
    rows = ()
    for k in tl.static_range(SEGMENT):
        present = inside if WHOLE else inside & (k < left)
        rows = rows + (tl.load(at, mask=present, other=0.0),)
        at += step
    return rows


@triton.jit
def charge(x, v, q, v_reset, LEAKY: tl.constexpr, DECAY_INPUT: tl.constexpr, RESET: tl.constexpr):
    """The charged membrane h, from input x and membrane v; q is 1 / tau."""
    if not LEAKY:
        return v + x
    if DECAY_INPUT:
        return v + (x - above_rest(v, v_reset, RESET)) * q
    return v - above_rest(v, v_reset, RESET) * q + x


@triton.jit
def above_rest(v, v_reset, RESET: tl.constexpr):
    """Distance of the membrane from its rest, which is 0 unless a hard reset goes elsewhere."""
    if RESET == HARD:
        return v - v_reset
    return v


@triton.jit
def reset(h, fired, v_threshold, v_reset, RESET: tl.constexpr):
    """The membrane after the reset; an infinite h that fired leaves NaN behind a hard reset."""
    if RESET == SOFT:
        return h - tl.where(fired, v_threshold, 0.0)
    kept = tl.where(fired, 0.0, 1.0) * h
    if RESET == HARD_TO_ZERO:
        return kept
    return tl.where(fired, v_reset, 0.0) + kept


@triton.jit
def rounded(v, DTYPE: tl.constexpr):
    """FP32 values rounded to DTYPE, still in FP32."""
    if tl.float32 == DTYPE:
        return v
    return v.to(DTYPE).to(tl.float32)


@triton.jit
def membrane_after(
    h,
    fired,
    v_threshold,
    v_reset,
    RESET: tl.constexpr,
    ARITHMETIC: tl.constexpr,
    STORAGE: tl.constexpr,
):
    """The membrane that the next time step starts from: h rounded to the arithmetic, reset, rounded to the storage."""
    return rounded(reset(rounded(h, ARITHMETIC), fired, v_threshold, v_reset, RESET), STORAGE)


@triton.jit
def difference(h, fired, v_threshold, DTYPE: tl.constexpr):
    """The difference h - v_threshold in DTYPE: finite where h is, and its sign says whether the neuron fired."""
    u = h - v_threshold
    # A threshold of 0 and an h of -0.0 give -0.0, which fires.
    u = tl.where(fired, tl.abs(u), u)
    if tl.float16 == DTYPE:
        u = tl.clamp(u, -LARGEST_FP16, LARGEST_FP16, propagate_nan=tl.PropagateNan.ALL)
    return u.to(DTYPE)


@triton.jit
def fired_by_sign(u):
    """Whether a neuron fired, from its stored difference: sign bit clear, not NaN; -0.0 is an underflow from below."""
    return u.to(tl.uint32, bitcast=True) <= INFINITY_BITS
