"""Bytes that the neuron kernels have to move and keep, per neuron and time step."""

from __future__ import annotations

from typing import NamedTuple

import torch

from lightning_snnprec.kernels.policy import kept_for_backward, kept_rows
from lightning_snnprec.kernels.switches import DIFFERENCES


class Traffic(NamedTuple):
    """Bytes per neuron and time step: moved by forward, moved by backward, and held in between."""

    forward: float
    backward: float
    kept: float


def traffic(
    x_dtype: torch.dtype,
    storage: torch.dtype,
    time_steps: int,
    *,
    training: bool = True,
    last_membrane: bool = True,
) -> Traffic:
    """Bytes for input and spikes of `x_dtype` from rest, each tensor counted once per pass.

    BF16 input and FP32 or BF16 storage, T <= 16, without the last membrane: forward 2 (input) + 2 (spikes),
    backward 2 (gradient) + 2 (input) + 2 (input gradient), 10 in all, and 2 kept, the input itself. Over 16 steps a
    checkpoint every 16 adds `storage` / 16 at most to each pass. With FP8 storage forward writes 1 byte of difference,
    which backward reads instead of the input: 10 in all, and 1 kept. The last membrane adds `storage` / T forward.

    Args:
        x_dtype: dtype of input, spikes and both gradients.
        storage: dtype of the membrane.
        time_steps: T.
        training: False counts a forward that keeps nothing.
        last_membrane: whether the membrane after the last step is written.
    """
    x = x_dtype.itemsize
    forward = 2.0 * x + (storage.itemsize / time_steps if last_membrane else 0.0)
    if not training:
        return Traffic(forward, 0.0, 0.0)
    kept = kept_for_backward(x_dtype, storage, time_steps)
    written = kept_rows(kept, time_steps) * storage.itemsize / time_steps
    read = written if kept == DIFFERENCES else written + x
    return Traffic(forward + written, 2.0 * x + read, read)
