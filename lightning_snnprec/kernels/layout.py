"""Memory order of [T, ...] tensors: which the kernels can read as they are, and how results are laid out.

A kernel numbers the N neurons of a time step by their place in memory, so all tensors of a call need the same inner
order, without gaps; the distance between time steps is free, 0 included (a gradient expanded over time). Results get
the input's inner order with time outermost: channels-last input gives channels-last spikes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def dense_steps(x_TBN: Tensor) -> Tensor:
    """`x_TBN` itself when every time step fills its memory without gaps, else a contiguous copy."""
    if x_TBN.is_contiguous() or _fills_memory(x_TBN.shape[1:], x_TBN.stride()[1:]):
        return x_TBN
    return x_TBN.contiguous()


def ordered_as(tensor: Tensor, reference_TBN: Tensor, *, time: bool) -> Tensor:
    """`tensor`, [T, ...] or one time step of it, in the inner order of a dense reference; a copy if it has another."""
    inner = 1 if time else 0
    shape, strides = tensor.shape[inner:], reference_TBN.stride()[1:]
    if _same_order(shape, tensor.stride()[inner:], strides):
        return tensor
    copy = empty(reference_TBN, tensor.dtype, tensor.shape[0] if time else None)
    return copy.copy_(tensor)


def empty(reference_TBN: Tensor, dtype: torch.dtype, time_steps: int | None) -> Tensor:
    """Memory for `time_steps` steps, or with None for one without a time dimension, ordered as a dense reference."""
    shape, strides = reference_TBN.shape[1:], reference_TBN.stride()[1:]
    if time_steps is None:
        return torch.empty_strided(shape, strides, dtype=dtype, device=reference_TBN.device)
    outer = (max(shape.numel(), 1), *strides)
    return torch.empty_strided((time_steps, *shape), outer, dtype=dtype, device=reference_TBN.device)


def _fills_memory(shape: Sequence[int], strides: Sequence[int]) -> bool:
    expected = 1
    for stride, size in sorted(zip(strides, shape, strict=True)):
        if size != 1:
            if stride != expected:
                return False
            expected *= size
    return True


def _same_order(shape: Sequence[int], strides: Sequence[int], others: Sequence[int]) -> bool:
    if strides == others:
        return True
    return all(size == 1 or a == b for size, a, b in zip(shape, strides, others, strict=True))
