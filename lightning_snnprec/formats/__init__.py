"""What each low-precision number format means, in plain torch: formats, rounding, scaling, metrics, references."""

from lightning_snnprec.formats import metrics, reference
from lightning_snnprec.formats.block import (
    BLOCK_1X128,
    BLOCK_128X128,
    MXFP8,
    NVFP4,
    NVFP4_2D,
    BlockSpec,
    QuantizedBlocks,
    effective_bits,
    quantize_blocks,
)
from lightning_snnprec.formats.delayed import AmaxHistory, quantize_delayed
from lightning_snnprec.formats.hadamard import random_hadamard, random_hadamard_inverse, random_signs
from lightning_snnprec.formats.rounding import (
    RANDOM_BITS,
    RoundingMode,
    decode,
    encode,
    overflows,
    random_bits,
    round_to,
)
from lightning_snnprec.formats.scale import Scale
from lightning_snnprec.formats.scaling import Quantized, amax_of, quantize_current, quantize_tensor, scale_for
from lightning_snnprec.formats.spec import (
    BF16,
    E2M1,
    E4M3,
    E5M2,
    E8M0,
    FORMATS,
    FP16,
    FP32,
    TF32,
    FloatSpec,
    codes,
)

__all__ = [
    "BF16",
    "BLOCK_1X128",
    "BLOCK_128X128",
    "E2M1",
    "E4M3",
    "E5M2",
    "E8M0",
    "FORMATS",
    "FP16",
    "FP32",
    "MXFP8",
    "NVFP4",
    "NVFP4_2D",
    "RANDOM_BITS",
    "TF32",
    "AmaxHistory",
    "BlockSpec",
    "FloatSpec",
    "Quantized",
    "QuantizedBlocks",
    "RoundingMode",
    "Scale",
    "amax_of",
    "codes",
    "decode",
    "effective_bits",
    "encode",
    "metrics",
    "overflows",
    "quantize_blocks",
    "quantize_current",
    "quantize_delayed",
    "quantize_tensor",
    "random_bits",
    "random_hadamard",
    "random_hadamard_inverse",
    "random_signs",
    "reference",
    "round_to",
    "scale_for",
]
