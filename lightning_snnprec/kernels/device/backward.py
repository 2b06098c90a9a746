"""Triton kernel of all T time steps backward.

A program walks its block of neurons through the segments of time from last to first. It loads a segment's inputs and
gradients together, recomputes the charged membranes h of the segment into registers from the checkpoint before it (or
reads the stored differences), and then goes through them in reverse. Per neuron and step it reads the gradient once
and the input (or the difference) once, and writes the input gradient once.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lightning_snnprec.kernels import switches
from lightning_snnprec.kernels.device.slopes import slope
from lightning_snnprec.kernels.device.step import (
    HARD_TO_ZERO,
    SOFT,
    above_rest,
    charge,
    fired_by_sign,
    load_steps,
    membrane_after,
    rounded,
)

DIFFERENCES = tl.constexpr(switches.DIFFERENCES)


@triton.jit
def recalled(kept, v_threshold, KEPT: tl.constexpr):
    """h, h - v_threshold and whether the neuron fired, from a recomputed h or a stored difference."""
    if KEPT == DIFFERENCES:
        return kept + v_threshold, kept, fired_by_sign(kept)
    return kept, kept - v_threshold, kept >= v_threshold


@triton.jit
def gradient_of_h(
    h,
    fired,
    u,
    grad_s,
    grad_v,
    v_threshold,
    v_reset,
    a,
    b,
    RESET: tl.constexpr,
    DETACH_RESET: tl.constexpr,
    SURROGATE: tl.constexpr,
):
    """Gradient of the charged membrane, from those of the spike and of the membrane after the reset."""
    if RESET == SOFT:
        through_reset = grad_v
        if not DETACH_RESET:
            grad_s = tl.fma(grad_v, -v_threshold, grad_s)
    else:
        through_reset = tl.where(fired, 0.0, grad_v)
        if not DETACH_RESET:
            # Times -1 is a sign of the operand; a unary minus would be a subtraction from 0.
            grad_s = tl.fma(grad_v, h * -1.0, grad_s)
            if RESET != HARD_TO_ZERO:
                grad_s = tl.fma(grad_v, v_reset, grad_s)
    return tl.fma(grad_s, slope(u, a, b, SURROGATE), through_reset)


@triton.jit(
    do_not_specialize=["units", "x_units", "grad_units", "grad_v_seq_units", "time_steps"],
)
def backward_kernel(
    x_ptr,  # [T, N], x_units * ALIGN elements from one time step to the next; None unless it is needed
    kept_ptr,  # differences [T, N], checkpoints [ceil(T / SEGMENT) - 1, N], or None
    v_ptr,  # [N] or None: at rest
    q_ptr,  # one FP32 number, 1 / tau, or None: `q` is
    grad_spikes_ptr,  # [T, N] with grad_units, or None: zero
    grad_v_last_ptr,  # [N] or None: zero
    grad_v_seq_ptr,  # [T, N] with grad_v_seq_units, or None: zero
    grad_x_ptr,  # [T, N] or None
    grad_v_ptr,  # [N] or None
    grad_q_ptr,  # [programs] FP32, a partial sum each, or None
    units: tl.int64,  # N / ALIGN
    x_units: tl.int64,
    grad_units: tl.int64,
    grad_v_seq_units: tl.int64,
    time_steps,
    v_threshold,
    v_reset,  # also the rest; 0 with soft reset
    q,
    a,
    b,
    LEAKY: tl.constexpr,
    DECAY_INPUT: tl.constexpr,
    RESET: tl.constexpr,
    DETACH_RESET: tl.constexpr,
    SURROGATE: tl.constexpr,
    KEPT: tl.constexpr,
    STORAGE: tl.constexpr,
    ARITHMETIC: tl.constexpr,
    BACKWARD: tl.constexpr,
    SEGMENT: tl.constexpr,
    WHOLE: tl.constexpr,  # T is a multiple of SEGMENT
    ALIGN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Gradients of input, first membrane and 1 / tau, for BLOCK neurons."""
    neurons = units * ALIGN
    x_step = x_units * ALIGN
    grad_step = grad_units * ALIGN
    grad_v_seq_step = grad_v_seq_units * ALIGN
    first = tl.program_id(0).to(tl.int64) * BLOCK
    lanes = tl.arange(0, BLOCK)
    inside = lanes < neurons - first
    steps = tl.zeros([BLOCK], tl.int32) + time_steps
    if q_ptr is not None:
        q = tl.load(q_ptr)
    if grad_v_last_ptr is None:
        grad_v = tl.zeros([BLOCK], tl.float32)
    else:
        grad_v = tl.load(grad_v_last_ptr + first + lanes, mask=inside, other=0.0).to(tl.float32)
    grad_q = tl.zeros([BLOCK], tl.float32)
    segments = tl.cdiv(time_steps, SEGMENT)

    for passed in range(segments):
        segment = segments - 1 - passed
        t0 = segment * SEGMENT
        t = tl.cast(t0, tl.int64)
        left = steps - t0
        # All loads of the segment before its first store: the compiler moves none across a store.
        if KEPT == DIFFERENCES:
            xs = load_steps(kept_ptr + (t * neurons + first) + lanes, neurons, inside, left, SEGMENT, WHOLE)
        else:
            xs = load_steps(x_ptr + (t * x_step + first) + lanes, x_step, inside, left, SEGMENT, WHOLE)
        if grad_spikes_ptr is not None:
            at = grad_spikes_ptr + (t * grad_step + first) + lanes
            grads = load_steps(at, grad_step, inside, left, SEGMENT, WHOLE)
        if grad_v_seq_ptr is not None:
            at = grad_v_seq_ptr + (t * grad_v_seq_step + first) + lanes
            grads_v = load_steps(at, grad_v_seq_step, inside, left, SEGMENT, WHOLE)

        if v_ptr is None:
            v = tl.zeros([BLOCK], tl.float32) + v_reset
        else:
            v = rounded(tl.load(v_ptr + first + lanes, mask=inside, other=0.0).to(tl.float32), STORAGE)
        if kept_ptr is not None:
            # The row before the segment: its checkpoint, or the difference of the last step before it.
            row = tl.cast(t0 - 1 if KEPT == DIFFERENCES else segment - 1, tl.int64) * neurons + first
            later = tl.zeros([BLOCK], tl.int32) < segment
            kept = tl.load(kept_ptr + row + lanes, mask=inside & later, other=0.0).to(tl.float32)
            if KEPT == DIFFERENCES:
                h, _, fired = recalled(kept, v_threshold, KEPT)
                kept = membrane_after(h, fired, v_threshold, v_reset, RESET, ARITHMETIC, STORAGE)
            v = tl.where(later, kept, v)
        start = v
        hs = ()
        for k in tl.static_range(SEGMENT):
            if KEPT == DIFFERENCES:
                hs = hs + (xs[k].to(tl.float32),)
            else:
                h = charge(xs[k].to(tl.float32), v, q, v_reset, LEAKY, DECAY_INPUT, RESET)
                v = membrane_after(h, h >= v_threshold, v_threshold, v_reset, RESET, ARITHMETIC, STORAGE)
                hs = hs + (h,)

        if grad_x_ptr is not None:
            grad_x_at = grad_x_ptr + ((t + SEGMENT - 1) * neurons + first) + lanes
        for k in tl.static_range(SEGMENT - 1, -1, -1):
            present = inside if WHOLE else inside & (k < left)
            h, u, fired = recalled(hs[k], v_threshold, KEPT)
            grad_s = tl.zeros([BLOCK], tl.float32)
            if grad_spikes_ptr is not None:
                grad_s = grads[k].to(tl.float32)
            at_step = grad_v
            if grad_v_seq_ptr is not None:
                at_step = grad_v + grads_v[k].to(tl.float32)
            grad_h = gradient_of_h(
                h, fired, u, grad_s, at_step, v_threshold, v_reset, a, b, RESET, DETACH_RESET, SURROGATE
            )
            grad_x = grad_h
            before = grad_h
            if LEAKY:
                before = grad_h - grad_h * q
                if DECAY_INPUT:
                    grad_x = grad_h * q
            before = rounded(before, BACKWARD)
            grad_v = before if WHOLE else tl.where(k < left, before, grad_v)
            if grad_q_ptr is not None:
                v = start
                if k > 0:
                    h_before, _, fired_before = recalled(hs[k - 1], v_threshold, KEPT)
                    v = membrane_after(h_before, fired_before, v_threshold, v_reset, RESET, ARITHMETIC, STORAGE)
                drive = above_rest(v, v_reset, RESET) * -1.0
                if DECAY_INPUT:
                    drive = (h - v) / q if KEPT == DIFFERENCES else xs[k].to(tl.float32) + drive
                more = tl.fma(grad_h, drive, grad_q)
                grad_q = more if WHOLE else tl.where(k < left, more, grad_q)
            if grad_x_ptr is not None:
                tl.store(grad_x_at, grad_x.to(grad_x_ptr.dtype.element_ty), mask=present)
                grad_x_at -= neurons
    if grad_v_ptr is not None:
        tl.store(grad_v_ptr + first + lanes, grad_v.to(grad_v_ptr.dtype.element_ty), mask=inside)
    if grad_q_ptr is not None:
        tl.store(grad_q_ptr + tl.program_id(0), tl.sum(grad_q))
