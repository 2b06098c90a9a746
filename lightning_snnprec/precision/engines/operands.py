"""Operands of a linear layer's three GEMMs, cast as a recipe says and restored to FP32.

    fprop    y_NO  = x_NI    w_OI^T     contracts I
    dgrad    dx_NI = g_NO    w_OI       contracts O
    wgrad    dw_OI = g_NO^T  x_NI       contracts N

N rows (time steps times batch), I input and O output features. A scale per tensor serves both uses of an operand; a
scale per block runs along the contracted dimension, so that an operand is cast twice. Operands of wgrad come
transposed, contracted dimension last.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_snnprec.formats import (
    BLOCK_1X128,
    BLOCK_128X128,
    E4M3,
    E5M2,
    MXFP8,
    NVFP4,
    NVFP4_2D,
    AmaxHistory,
    BlockSpec,
    FloatSpec,
    RoundingMode,
    amax_of,
    quantize_blocks,
    quantize_tensor,
    random_hadamard,
    scale_for,
)

Role: TypeAlias = Literal["input", "weight", "grad_output"]
ROLES: tuple[Role, ...] = ("input", "weight", "grad_output")
TENSOR_FORMATS: dict[Role, FloatSpec] = {"input": E4M3, "weight": E4M3, "grad_output": E5M2}
BitSource: TypeAlias = Callable[[Tensor], Tensor]


class Cast(NamedTuple):
    """One operand, cast for both GEMMs that read it.

    Args:
        rows: [N, C] (or [O, I] of a weight), for the GEMM that contracts the last dimension.
        columns: transposed, [C, N'] (or [I, O'] of a weight), for the GEMM that contracts the first; N' is N padded
            with zeros to a block where the cast needs it.
    """

    rows: Tensor
    columns: Tensor


class OperandCast(Protocol):
    """How one operand of one layer is cast."""

    def __call__(self, x: Tensor, *, record: bool) -> Cast:
        """Casts FP32 `x` [rows, columns]; `record` lets its amax count for later scales."""


@dataclass
class CurrentCast:
    """A scale per tensor, from the tensor's own amax."""

    spec: FloatSpec
    bits: BitSource | None = None

    def __call__(self, x: Tensor, *, record: bool) -> Cast:
        """Casts FP32 `x` [rows, columns]; nothing is recorded."""
        return _both(_tensor(x, self.spec, scale_for(amax_of(x), self.spec, validate=False), self.bits))


@dataclass
class DelayedCast:
    """A scale per tensor, from the amax of earlier steps.

    Args:
        history: amax history and scale.
        own_amax_first: while nothing has been recorded yet, use the tensor's own amax; False starts at scale 1, as
            Transformer Engine does.
        bits: random bits for stochastic rounding, or None for nearest even.
    """

    history: AmaxHistory
    own_amax_first: bool = True
    bits: BitSource | None = None

    def __call__(self, x: Tensor, *, record: bool) -> Cast:
        """Casts FP32 `x` [rows, columns], and records its amax if asked to."""
        amax = amax_of(x)
        if record:
            self.history.record(torch.where(amax.isfinite(), amax, 0.0))
        scale = self.history.scale
        if self.own_amax_first:
            own = scale_for(amax, self.history.spec, self.history.margin, validate=False)
            scale = torch.where(self.history.amax > 0, scale, own)
        return _both(_tensor(x, self.history.spec, scale, self.bits))


@dataclass
class BlockCast:
    """A scale per block along the contracted dimension.

    Args:
        block: block format; one of several rows quantizes a matrix and its transpose alike.
        bits: random bits for stochastic rounding, or None for nearest even.
        signs: [16] signs of the random Hadamard transform of wgrad's operands, or None for no transform.
    """

    block: BlockSpec
    bits: BitSource | None = None
    signs: Tensor | None = None

    def __call__(self, x: Tensor, *, record: bool) -> Cast:
        """Casts FP32 `x` [rows, columns]; nothing is recorded."""
        rows = self._cast(x)[: x.shape[0], : x.shape[1]]
        if self.block.rows > 1:
            return _both(rows)
        columns = _padded(x.t(), 1, self.block.cols)
        if self.signs is not None:
            columns = random_hadamard(columns, self.signs, validate=False)
        return Cast(rows, self._cast(columns))

    def _cast(self, x: Tensor) -> Tensor:
        x = _padded(x, self.block.rows, self.block.cols)
        mode, bits = _rounding(x, self.bits)
        return quantize_blocks(x, self.block, mode, bits, validate=False).restored


def operand_cast(
    recipe: str, role: Role, history: AmaxHistory | None, bits: BitSource | None, signs: Tensor
) -> OperandCast:
    """The cast of one operand under a recipe.

    Args:
        recipe: "delayed", "current", "block", "mxfp8" or "nvfp4".
        role: the operand.
        history: for "delayed" only.
        bits: source of random bits, used for gradients.
        signs: signs of the Hadamard transform, used by "nvfp4".
    """
    bits = bits if role == "grad_output" else None
    if recipe == "delayed":
        assert history is not None
        return DelayedCast(history, bits=bits)
    if recipe == "current":
        return CurrentCast(TENSOR_FORMATS[role], bits)
    if recipe == "block":
        return BlockCast(BLOCK_128X128 if role == "weight" else BLOCK_1X128, bits)
    if recipe == "mxfp8":
        return BlockCast(MXFP8, bits)
    return BlockCast(NVFP4_2D) if role == "weight" else BlockCast(NVFP4, bits, signs)


def _tensor(x: Tensor, spec: FloatSpec, scale: Tensor, source: BitSource | None) -> Tensor:
    mode, bits = _rounding(x, source)
    return quantize_tensor(x, spec, scale, mode, bits, validate=False).restored


def _rounding(x: Tensor, source: BitSource | None) -> tuple[RoundingMode, Tensor | None]:
    return ("nearest", None) if source is None else ("stochastic", source(x))


def _both(rows: Tensor) -> Cast:
    return Cast(rows, rows.t())


def _padded(x: Tensor, rows: int, cols: int) -> Tensor:
    missing = (-x.shape[1] % cols, -x.shape[0] % rows)
    return F.pad(x, (0, missing[0], 0, missing[1])) if any(missing) else x
