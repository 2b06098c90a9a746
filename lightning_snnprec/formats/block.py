"""Scaling per block along the last dimension: FP8 with 1x128 and 128x128 blocks, MXFP8, NVFP4."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import torch
from torch import Tensor

from lightning_snnprec.arguments import choice_fault, int_fault, raise_faults
from lightning_snnprec.formats.block_scale import SCALE_FORMATS, ScaleRule, block_scales
from lightning_snnprec.formats.rounding import RoundingMode, overflows, round_to
from lightning_snnprec.formats.scale import Scale
from lightning_snnprec.formats.scaling import check_amax
from lightning_snnprec.formats.spec import E2M1, E4M3, FloatSpec


@dataclass(frozen=True)
class BlockSpec:
    """A block format: the payload's format, the block's size and the rule of its scale.

    Attributes:
        name: for messages and reports.
        rows: rows of a block, along the second last dimension; 1 for blocks inside a row.
        cols: columns of a block, along the last dimension.
        element: the payload's format.
        rule: how a block's amax becomes its scale, see `ScaleRule`.

    Raises:
        ValueError: a size that is no int of at least 1, or an unknown rule.
    """

    name: str
    rows: int
    cols: int
    element: FloatSpec
    rule: ScaleRule

    def __post_init__(self) -> None:
        raise_faults(
            "BlockSpec",
            [
                int_fault("rows", self.rows, minimum=1),
                int_fault("cols", self.cols, minimum=1),
                choice_fault("rule", self.rule, get_args(ScaleRule)),
            ],
        )

    @property
    def scale_format(self) -> FloatSpec:
        """Format in which a block's scale is stored."""
        return SCALE_FORMATS[self.rule]

    @property
    def has_tensor_scale(self) -> bool:
        """Whether one more FP32 scale belongs to the whole tensor."""
        return self.rule == "nvfp4"


BLOCK_1X128 = BlockSpec("BLOCK_1X128", 1, 128, E4M3, "power_of_two")
"""Activations and gradients of Transformer Engine's `Float8BlockScaling`."""
BLOCK_128X128 = BlockSpec("BLOCK_128X128", 128, 128, E4M3, "power_of_two")
"""Weights of Transformer Engine's `Float8BlockScaling`."""
MXFP8 = BlockSpec("MXFP8", 1, 32, E4M3, "e8m0_up")
"""OCP MX 1.0 MXFP8 with NVIDIA's rounding of the scale."""
NVFP4 = BlockSpec("NVFP4", 1, 16, E2M1, "nvfp4")
"""NVIDIA's FP4: E4M3 scale per 16 elements of a row, FP32 scale per tensor."""
NVFP4_2D = BlockSpec("NVFP4_2D", 16, 16, E2M1, "nvfp4")
"""NVFP4 of weights: one scale per 16x16 block, so that the transpose quantizes alike."""


@dataclass(frozen=True, eq=False)
class QuantizedBlocks:
    """A tensor quantized block by block.

    Attributes:
        payload: FP32 of x's shape, on the grid of the element format.
        scale: one value per block, [..., C / cols], or [..., R / rows, C / cols] for blocks of several rows;
            meaning "decode", as the formats store it.
        tensor_scale: FP32 scale of the whole tensor, meaning "decode"; None where the format has none.
        saturated: bool of x's shape: clipping, not rounding, decided the element.
        restored: FP32, (payload * scale) * tensor_scale; Inf where a step of the grid leads beyond FP32's range.
    """

    payload: Tensor
    scale: Scale
    tensor_scale: Scale | None
    saturated: Tensor
    restored: Tensor


def quantize_blocks(
    x: Tensor,
    block: BlockSpec,
    mode: RoundingMode = "nearest",
    bits: Tensor | None = None,
    *,
    validate: bool = True,
) -> QuantizedBlocks:
    """Quantizes `x` with one scale per block of its last dimension (and of the one before it, if the block has rows).

    Blocks never cross a row, and blocks of several rows never cross a matrix of the leading dimensions. A block of
    zeros gives exact zeros and a finite scale.

    Args:
        x: floating point tensor [..., C], or [..., R, C] for blocks of several rows; it is taken to FP32 first.
        block: the block format.
        mode: rounding of the payload (that of the scale is the block's rule), see `round_to`.
        bits: random bits for stochastic rounding, of x's shape, see `round_to`.
        validate: refuse Inf and NaN, which waits for the device; False treats the amax of such a block as the
            element format's largest value, so that its scale is near 1, Inf saturates and NaN stays where it can.

    Returns:
        Payload, scales, mask of saturated elements, and restored values.

    Raises:
        ValueError: the block does not tile x, an amax that is not finite, or a bad mode or bits.
    """
    tiles = _tiles(x.detach().float(), block)
    # Not of |tiles|, a temporary as large as x; abs turns -0 into 0.
    amax = torch.maximum(tiles.amax(-3).amax(-1), -tiles.amin(-3).amin(-1)).abs()
    if validate:
        check_amax(f"quantize_blocks with {block.name}", amax)
    else:
        amax = torch.where(amax.isfinite(), amax, block.element.max)
    scales = block_scales(amax, block.element, block.rule)
    scaled = (tiles * _per_tile(scales.encode)).reshape(x.shape)
    payload = round_to(scaled, block.element, mode, bits)
    restored = (_tiles(payload, block) * _per_tile(scales.decode)).reshape(x.shape)
    tensor_scale = None
    if scales.tensor is not None:
        restored.mul_(scales.tensor)
        tensor_scale = Scale(scales.tensor, None, None, block.rule, block.element.name, "decode")
    return QuantizedBlocks(
        payload, _record(scales.decode, block), tensor_scale, overflows(scaled, block.element), restored
    )


def effective_bits(format: BlockSpec | FloatSpec, numel: int | None = None) -> float:
    """Returns the bits per element, scales included.

    Args:
        format: a number format, or a block format.
        numel: elements of the tensor, to spread the FP32 scale of the whole tensor over them (of a plain format, or of
            a block format that has one); None leaves that scale out.
    """
    if isinstance(format, FloatSpec):
        bits, one_per_tensor = float(format.bits), True
    else:
        bits = format.element.bits + format.scale_format.bits / (format.rows * format.cols)
        one_per_tensor = format.has_tensor_scale
    return bits + (32 / numel if numel and one_per_tensor else 0.0)


def _tiles(x: Tensor, block: BlockSpec) -> Tensor:
    """Returns a view [..., R / rows, rows, C / cols, cols]; for blocks of one row [..., 1, C / cols, cols]."""
    needed = (block.cols,) if block.rows == 1 else (block.rows, block.cols)
    sizes = x.shape[-len(needed) :]
    if len(sizes) < len(needed) or any(size % part for size, part in zip(sizes, needed, strict=True)):
        last = "dimension" if block.rows == 1 else "two dimensions"
        tile = " x ".join(map(str, needed))
        raise ValueError(
            f"quantize_blocks: {block.name} needs the last {last} in multiples of {tile}; x is {tuple(x.shape)}. "
            "Pad it with zeros first: they change neither amax nor products."
        )
    columns = (x.shape[-1] // block.cols, block.cols)
    if block.rows == 1:
        return x.reshape(*x.shape[:-1], 1, *columns)
    return x.reshape(*x.shape[:-2], x.shape[-2] // block.rows, block.rows, *columns)


def _per_tile(scale: Tensor) -> Tensor:
    """Shapes one value per block, [..., C / cols], so that it broadcasts against `_tiles`."""
    return scale.unsqueeze(-2).unsqueeze(-1)


def _record(values: Tensor, block: BlockSpec) -> Scale:
    group = (block.rows, block.cols)
    return Scale(values, -1, group, block.rule, block.element.name, "decode", block.scale_format.name)
