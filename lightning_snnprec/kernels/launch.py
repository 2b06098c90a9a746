"""From tensors to kernel launches: layouts, tiles, grid, device. Imports Triton, so it is imported at first use.

One program per block of neurons on the first axis of the grid, which takes 2^31 - 1 of them; offsets are 64 bits wide.
Integers that change with batch size or T are no part of what a kernel is compiled for; distances between time steps
are passed in units of their common alignment, so that the compiler knows it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
import triton.language as tl
from torch import Tensor

from lightning_snnprec.kernels.device.backward import backward_kernel
from lightning_snnprec.kernels.device.forward import forward_kernel
from lightning_snnprec.kernels.layout import dense_steps, empty, ordered_as
from lightning_snnprec.kernels.policy import CHECKPOINT_EVERY, kept_for_backward, kept_rows
from lightning_snnprec.kernels.problem import Numbers, Switches
from lightning_snnprec.kernels.switches import DIFFERENCES, NOTHING
from lightning_snnprec.kernels.tiles import WARPS, Tile, alignment, backward_tile, forward_tile, processors

_TRITON = {
    torch.float32: tl.float32,
    torch.bfloat16: tl.bfloat16,
    torch.float16: tl.float16,
    torch.float8_e4m3fn: tl.float8e4nv,
    torch.float8_e5m2: tl.float8e5,
}


def forward(
    x_TBN: Tensor,
    v_BN: Tensor | None,
    inverse_tau: Tensor | None,
    switches: Switches,
    numbers: Numbers,
    spikes_dtype: torch.dtype,
    for_backward: bool,
    last_membrane: bool,
    all_membranes: bool,
    tile: Tile | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Spikes, last membrane, all membranes, and what backward needs; those not asked for have no rows.

    Args:
        x_TBN: input [T, ...], T >= 1.
        v_BN: membrane before the first step; None is at rest.
        inverse_tau: one FP32 number; None takes `numbers`.
        switches: what to compile for.
        numbers: threshold, rest, 1 / tau and the slope's two.
        spikes_dtype: dtype of the spikes.
        for_backward: whether `backward` will follow.
        last_membrane: whether to write the membrane after the last step.
        all_membranes: whether to write the membrane after every step.
        tile: overrides the tile, for measurements and checks.
    """
    x = dense_steps(x_TBN)
    T, storage = x.shape[0], switches.membrane.storage
    kept = kept_for_backward(x.dtype, storage, T) if for_backward else NOTHING
    spikes = empty(x, spikes_dtype, T)
    v_last = empty(x, storage, None if last_membrane else 0)
    v_seq = empty(x, storage, T if all_membranes else 0)
    saved = empty(x, storage, kept_rows(kept, T))
    N = x.numel() // T
    if N == 0:
        return spikes, v_last, v_seq, saved
    x_step = x.stride(0) if T > 1 else 0
    align = alignment(N, x_step)
    chosen = tile or forward_tile(T, x.dtype.itemsize, N, align, processors(x.device))
    v = None if v_BN is None else ordered_as(v_BN, x, time=False)
    with _device(x):
        forward_kernel[(-(-N // chosen.block),)](
            x.view(torch.uint8) if x.dtype == torch.bool else x,
            v,
            inverse_tau,
            spikes,
            v_last if last_membrane else None,
            v_seq if all_membranes else None,
            saved if kept != NOTHING else None,
            N // align,
            x_step // align,
            T,
            numbers.v_threshold,
            numbers.rest,
            numbers.inverse_tau,
            LEAKY=switches.leaky,
            DECAY_INPUT=switches.decay_input,
            RESET=switches.reset,
            KEPT=kept,
            STORAGE=_TRITON[storage],
            ARITHMETIC=_TRITON[switches.membrane.forward],
            EVERY=CHECKPOINT_EVERY,
            SEGMENT=chosen.segment,
            WHOLE=T % chosen.segment == 0,
            ALIGN=align,
            BLOCK=chosen.block,
            num_warps=WARPS,
            enable_fp_fusion=False,
        )
    return spikes, v_last, v_seq, saved


def backward(
    grad_spikes: Tensor | None,
    grad_v_last: Tensor | None,
    grad_v_seq: Tensor | None,
    x_TBN: Tensor | None,
    saved: Tensor,
    v_BN: Tensor | None,
    inverse_tau: Tensor | None,
    switches: Switches,
    numbers: Numbers,
    x_dtype: torch.dtype,
    for_x: bool,
    for_v: bool,
    for_inverse_tau: bool,
    tile: Tile | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of input, first membrane (in FP32 without one) and 1 / tau; those not asked for have no rows.

    The gradient of 1 / tau is summed per program and then over programs, always in the same order.

    Args:
        grad_spikes: gradient of the spikes [T, ...], or None for zero; any strides, like the next two.
        grad_v_last: gradient of the last membrane, or None for zero.
        grad_v_seq: gradient of all membranes [T, ...], or None for zero.
        x_TBN: the input; may be None where `saved` holds differences.
        saved: what `forward` kept.
        v_BN: membrane before the first step; None is at rest.
        inverse_tau: one FP32 number; None takes `numbers`.
        switches: what to compile for.
        numbers: threshold, rest, 1 / tau and the slope's two.
        x_dtype: dtype of the input and of its gradient.
        for_x: whether to write the gradient of the input.
        for_v: whether to write the gradient of the first membrane.
        for_inverse_tau: whether to give the gradient of 1 / tau, [1] in FP32.
        tile: overrides the tile, for measurements and checks.
    """
    storage = switches.membrane.storage
    differences = kept_for_backward(x_dtype, storage, 1) == DIFFERENCES
    x = saved if differences or x_TBN is None else dense_steps(x_TBN)
    T = x.shape[0]
    kept = kept_for_backward(x_dtype, storage, T)
    grad_x = empty(x, x_dtype, T if for_x else 0)
    grad_v = empty(x, torch.float32 if v_BN is None else v_BN.dtype, None if for_v else 0)
    N = x.numel() // T
    if N == 0:
        return grad_x, grad_v, torch.zeros(int(for_inverse_tau), device=x.device)
    spikes_gradient, spikes_step = _stepped(grad_spikes, x)
    seq_gradient, seq_step = _stepped(grad_v_seq, x)
    x_step = x.stride(0) if T > 1 and not differences else 0
    align = alignment(N, x_step, spikes_step, seq_step)
    chosen = tile or backward_tile(T, x_dtype.itemsize, kept, N, align, processors(x.device))
    programs = -(-N // chosen.block)
    partial = torch.empty(programs if for_inverse_tau else 0, dtype=torch.float32, device=x.device)
    v = None if v_BN is None else ordered_as(v_BN, x, time=False)
    last_gradient = None if grad_v_last is None else ordered_as(grad_v_last, x, time=False)
    with _device(x):
        backward_kernel[(programs,)](
            None if differences else x,
            saved if kept != NOTHING else None,
            v,
            inverse_tau,
            spikes_gradient,
            last_gradient,
            seq_gradient,
            grad_x if for_x else None,
            grad_v if for_v else None,
            partial if for_inverse_tau else None,
            N // align,
            x_step // align,
            spikes_step // align,
            seq_step // align,
            T,
            numbers.v_threshold,
            numbers.rest,
            numbers.inverse_tau,
            numbers.a,
            numbers.b,
            LEAKY=switches.leaky,
            DECAY_INPUT=switches.decay_input,
            RESET=switches.reset,
            DETACH_RESET=switches.detach_reset,
            SURROGATE=switches.surrogate,
            KEPT=kept,
            STORAGE=_TRITON[storage],
            ARITHMETIC=_TRITON[switches.membrane.forward],
            BACKWARD=_TRITON[switches.membrane.backward],
            SEGMENT=chosen.segment,
            WHOLE=T % chosen.segment == 0,
            ALIGN=align,
            BLOCK=chosen.block,
            num_warps=WARPS,
            enable_fp_fusion=False,
        )
    return grad_x, grad_v, partial.sum(0, keepdim=True) if for_inverse_tau else partial


def _stepped(gradient: Tensor | None, x: Tensor) -> tuple[Tensor | None, int]:
    """A gradient [T, ...] in the order of x, and the distance between its time steps."""
    if gradient is None:
        return None, 0
    ordered = ordered_as(gradient, x, time=True)
    return ordered, ordered.stride(0) if x.shape[0] > 1 else 0


def _device(x: Tensor) -> AbstractContextManager[object]:
    if x.device.type != "cuda" or x.device.index == torch.cuda.current_device():
        return nullcontext()
    return torch.cuda.device(x.device)
