"""From the amax of blocks to their scales: the rules of each block format."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from lightning_snnprec.formats.rounding import round_to
from lightning_snnprec.formats.scaling import FLOAT32, scale_for
from lightning_snnprec.formats.spec import E4M3, E8M0, FP32, FloatSpec

ScaleRule = Literal["power_of_two", "fp32", "e8m0_up", "e8m0_floor", "nvfp4"]
"""How the amax of a block becomes its scale; M is the element format's largest value.

`power_of_two`: encode with M / amax rounded down to a power of two, held in FP32 (Transformer Engine's default for
`Float8BlockScaling`). `fp32`: M / amax itself (its `NVTE_FP8_BLOCK_SCALING_FP32_SCALES=1`). Of zeros: 1.

`e8m0_up`: decode with amax * fl(1/M) rounded *up* to a power of two. NVIDIA's hardware and Transformer Engine do so
(`cvt.rp.satfinite.ue8m0x2`, `float_to_e8m0`), since no element then saturates: Mishra et al. 2025, "Recipes for
Pre-training LLMs with MXFP8", find that the floor of OCP loses accuracy by it. `e8m0_floor`: decode with
2**(floor(log2(amax)) - emax), OCP MX 1.0, 6.3, under which the block's largest elements can saturate (amax of E4M3
between 448 and 512 times the scale). Of zeros: the smallest scale, 2**-127. Where Transformer Engine multiplies the
elements by 1 when the scale's code is 0 (amax <= 448 * 2**-127), the exact reciprocal 2**127 is taken here.

`nvfp4`: NVIDIA's two levels as in Transformer Engine's quantizer. The tensor encodes with S = 448 * 6 / amax of all (1
if that is 0), a block stores the decode scale E4M3(amax * fl(S * fl(1/6))) and encodes with 1 / (stored * fl(1/S)),
at most the largest FP32 number. Of zeros: 0; so too, as in hardware, for a block whose scale underflows E4M3: what it
held is restored as zeros and marked saturated.
"""

SCALE_FORMATS: dict[ScaleRule, FloatSpec] = {
    "power_of_two": FP32,
    "fp32": FP32,
    "e8m0_up": E8M0,
    "e8m0_floor": E8M0,
    "nvfp4": E4M3,
}
"""The format in which each rule stores a block's scale."""


class BlockScales(NamedTuple):
    """FP32 scales: elements are multiplied by `encode`; payload times `decode` (times `tensor`) restores them."""

    encode: Tensor
    decode: Tensor
    tensor: Tensor | None


def block_scales(amax: Tensor, element: FloatSpec, rule: ScaleRule) -> BlockScales:
    """Returns the scales of blocks with these amax values.

    Args:
        amax: FP32 of any shape, one per block, finite and not negative.
        element: the payload's format.
        rule: the rule.

    Returns:
        `encode` and `decode` of amax's shape, `decode` on the grid of `SCALE_FORMATS[rule]`; `tensor` with 0
        dimensions for "nvfp4", else None.
    """
    if rule == "nvfp4":
        return _two_levels(amax, element)
    if rule == "e8m0_up":
        return _from_power(_power_of_two_above(amax * (1.0 / element.max)))
    if rule == "e8m0_floor":
        floor = round_to(amax, E8M0, "toward_zero")
        return _from_power((floor * math.ldexp(1.0, -element.max_exponent)).clamp(min=E8M0.min_normal))
    encode = scale_for(amax, element, power_of_two=rule == "power_of_two", validate=False)
    return BlockScales(encode, 1.0 / encode, None)


def _from_power(decode: Tensor) -> BlockScales:
    return BlockScales(1.0 / decode, decode, None)


def _power_of_two_above(x: Tensor) -> Tensor:
    """The smallest value of E8M0 that is at least x; the largest of all if there is none."""
    floor = round_to(x, E8M0, "toward_zero")
    return torch.where(x > floor, floor * 2.0, floor).clamp(max=E8M0.max)


def _two_levels(amax: Tensor, element: FloatSpec) -> BlockScales:
    most = amax.amax() if amax.numel() else amax.new_zeros(())
    tensor_encode = (torch.full_like(most, E4M3.max * element.max) / most).clamp(max=FLOAT32.max)
    tensor_encode = torch.where(most > 0, tensor_encode, 1.0)
    tensor_decode = 1.0 / tensor_encode
    sixth = torch.full_like(most, 1.0 / element.max)
    decode = round_to(amax * (tensor_encode * sixth), E4M3)
    encode = (1.0 / (decode * tensor_decode)).clamp(max=FLOAT32.max)
    return BlockScales(encode, decode, tensor_decode)
