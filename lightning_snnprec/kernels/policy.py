"""How a membrane is stored and computed, exactly, and what forward keeps for backward.

One time step, in FP32 unless a dtype is named; `storage`, `forward` and `backward` are the policy's three dtypes:

    h    = charge(x, v)                       one rounding per operation, no FMA contraction
    s    = h >= v_threshold                   decided once, on this h; backward uses this decision
    v    = storage(reset(forward(h), s))      what the next time step starts from

    g_h  = g_s slope(h - v_threshold) + ...   surrogate, threshold difference and exponentials always in FP32
    g_v  = backward(g_h dh/dv)                what the time step before starts from
    g_x  = g_h dh/dx, rounded once to the input's dtype

Arithmetic below FP32 therefore rounds the membrane's update, and the update of its gradient, once in every step.
"fp8" means the storage's own format, both ways. Casts round to nearest even; FP8 saturates.

Kept for backward, on top of what the caller holds already:

    storage at least as wide as the input   nothing: h is recomputed from the input, to the last bit
        and more than 16 time steps         the membrane every 16 steps, in the storage dtype
    storage narrower than the input         h - v_threshold in the storage dtype, and the input is not needed. Its sign
                                            is the decision (-0.0 did not fire), and FP16 and FP8 saturate
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from lightning_snnprec.kernels.switches import CHECKPOINTS, DIFFERENCES, NOTHING

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
DTYPES = (torch.float32, torch.bfloat16, torch.float16, *FLOAT8)
"""Storage and arithmetic dtypes, by number."""

INPUTS = (*DTYPES, torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
"""Dtypes of input that kernels read."""

CHECKPOINT_EVERY = 16
"""Time steps from one checkpoint to the next: a segment's h has to fit in registers."""

_ARITHMETIC = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class Membrane(NamedTuple):
    """Dtypes of storage, forward arithmetic and backward arithmetic."""

    storage: torch.dtype = torch.float32
    forward: torch.dtype = torch.float32
    backward: torch.dtype = torch.float32


def membrane(storage: torch.dtype | None = None, forward: str = "fp32", backward: str = "fp32") -> Membrane:
    """The dtypes that a policy means.

    Args:
        storage: one of `DTYPES`; None is FP32.
        forward: "fp32", "bf16", "fp16", or "fp8" with a float8 storage.
        backward: as `forward`.

    Raises:
        ValueError: an unknown dtype or arithmetic, or "fp8" without a float8 storage.
    """
    stored = torch.float32 if storage is None else storage
    if stored not in DTYPES:
        raise ValueError(f"storage={storage}: must be one of {', '.join(map(str, DTYPES))}, or None for FP32.")
    return Membrane(stored, _arithmetic("forward", forward, stored), _arithmetic("backward", backward, stored))


def _arithmetic(field: str, name: str, storage: torch.dtype) -> torch.dtype:
    if name == "fp8" and storage in FLOAT8:
        return storage
    if name not in _ARITHMETIC:
        raise ValueError(f"{field}={name!r}: must be 'fp32', 'bf16', 'fp16', or 'fp8' with a float8 storage.")
    return _ARITHMETIC[name]


def kept_for_backward(x_dtype: torch.dtype, storage: torch.dtype, time_steps: int) -> int:
    """What forward writes for backward: `NOTHING`, `DIFFERENCES` or `CHECKPOINTS`."""
    if storage.itemsize < x_dtype.itemsize:
        return DIFFERENCES
    return CHECKPOINTS if time_steps > CHECKPOINT_EVERY else NOTHING


def kept_rows(kept: int, time_steps: int) -> int:
    """How many rows of one time step's size the kept tensor has."""
    if kept == DIFFERENCES:
        return time_steps
    return (time_steps - 1) // CHECKPOINT_EVERY if kept == CHECKPOINTS else 0
