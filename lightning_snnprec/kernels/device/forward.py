"""Triton kernel of all T time steps forward.

A program owns a block of neurons, keeps their membranes in registers and walks through time. Per neuron and step it
reads the input once and writes the spike once; what backward needs on top is said in
`lightning_snnprec.kernels.policy`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from lightning_snnprec.kernels import switches
from lightning_snnprec.kernels.device.step import charge, difference, load_steps, membrane_after, rounded

DIFFERENCES = tl.constexpr(switches.DIFFERENCES)
CHECKPOINTS = tl.constexpr(switches.CHECKPOINTS)


@triton.jit(do_not_specialize=["units", "x_units", "time_steps"])
def forward_kernel(
    x_ptr,  # [T, N], x_units * ALIGN elements from one time step to the next
    v_ptr,  # [N] or None: at rest
    q_ptr,  # one FP32 number, 1 / tau, or None: `q` is
    spikes_ptr,  # [T, N]
    v_last_ptr,  # [N] or None
    v_seq_ptr,  # [T, N] or None
    kept_ptr,  # differences [T, N], checkpoints [ceil(T / EVERY) - 1, N], or None
    units: tl.int64,  # N / ALIGN
    x_units: tl.int64,
    time_steps,
    v_threshold,
    v_reset,  # also the rest; 0 with soft reset
    q,
    LEAKY: tl.constexpr,
    DECAY_INPUT: tl.constexpr,
    RESET: tl.constexpr,
    KEPT: tl.constexpr,
    STORAGE: tl.constexpr,
    ARITHMETIC: tl.constexpr,
    EVERY: tl.constexpr,  # time steps from one checkpoint to the next, a multiple of SEGMENT
    SEGMENT: tl.constexpr,
    WHOLE: tl.constexpr,  # T is a multiple of SEGMENT
    ALIGN: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Spikes, last membrane, all membranes and what backward needs, for BLOCK neurons."""
    neurons = units * ALIGN
    x_step = x_units * ALIGN
    first = tl.program_id(0).to(tl.int64) * BLOCK
    lanes = tl.arange(0, BLOCK)
    inside = lanes < neurons - first
    steps = tl.zeros([BLOCK], tl.int32) + time_steps
    if q_ptr is not None:
        q = tl.load(q_ptr)
    if v_ptr is None:
        v = tl.zeros([BLOCK], tl.float32) + v_reset
    else:
        v = rounded(tl.load(v_ptr + first + lanes, mask=inside, other=0.0).to(tl.float32), STORAGE)
    xs_at = x_ptr + first + lanes
    spikes_at = spikes_ptr + first + lanes
    if v_seq_ptr is not None:
        v_seq_at = v_seq_ptr + first + lanes
    if kept_ptr is not None:
        kept_at = kept_ptr + first + lanes

    for t0 in range(0, time_steps, SEGMENT):
        left = steps - t0
        xs = load_steps(xs_at, x_step, inside, left, SEGMENT, WHOLE)
        xs_at += SEGMENT * x_step
        for k in tl.static_range(SEGMENT):
            h = charge(xs[k].to(tl.float32), v, q, v_reset, LEAKY, DECAY_INPUT, RESET)
            fired = h >= v_threshold
            after = membrane_after(h, fired, v_threshold, v_reset, RESET, ARITHMETIC, STORAGE)
            v = after if WHOLE else tl.where(k < left, after, v)
            present = inside if WHOLE else inside & (k < left)
            tl.store(spikes_at, tl.where(fired, 1.0, 0.0).to(spikes_ptr.dtype.element_ty), mask=present)
            spikes_at += neurons
            if v_seq_ptr is not None:
                tl.store(v_seq_at, v.to(v_seq_ptr.dtype.element_ty), mask=present)
                v_seq_at += neurons
            if KEPT == DIFFERENCES:
                tl.store(kept_at, difference(h, fired, v_threshold, kept_ptr.dtype.element_ty), mask=present)
                kept_at += neurons
        if KEPT == CHECKPOINTS:
            done = t0 + SEGMENT
            if (done % EVERY == 0) & (done < time_steps):
                tl.store(kept_at, v.to(kept_ptr.dtype.element_ty), mask=inside)
                kept_at += neurons
    if v_last_ptr is not None:
        tl.store(v_last_ptr + first + lanes, v.to(v_last_ptr.dtype.element_ty), mask=inside)
