"""Number formats as data: a format is its field widths and its rule for special values; limits are derived."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

NanRule = Literal["ieee", "all_ones", "none"]
"""Which codes are NaN. `ieee`: the top exponent with a mantissa that is not zero (mantissa zero is Inf).
`all_ones`: only the code whose exponent and mantissa bits are all ones. `none`: the format has no NaN."""


@dataclass(frozen=True)
class FloatSpec:
    """A binary floating point format of at most 32 bits.

    Attributes:
        name: the name of its constant here, such as "E4M3".
        exponent_bits: width of the exponent field.
        mantissa_bits: width of the mantissa field; 0 means powers of two only: no zero, no subnormals.
        bias: what is subtracted from the exponent field.
        signed: has a sign bit.
        has_inf: has ±Inf; true just where `nan` is "ieee".
        nan: which codes are NaN.
        dtype: torch's dtype of that format; None where torch has none that holds one element.
    """

    name: str
    exponent_bits: int
    mantissa_bits: int
    bias: int
    signed: bool
    has_inf: bool
    nan: NanRule
    dtype: torch.dtype | None = None

    @property
    def bits(self) -> int:
        """Bits of one element."""
        return int(self.signed) + self.exponent_bits + self.mantissa_bits

    @property
    def has_zero(self) -> bool:
        """Whether the lowest exponent field means zero and subnormals (not so in E8M0)."""
        return self.mantissa_bits > 0

    @property
    def min_exponent(self) -> int:
        """Exponent of `min_normal`."""
        return (1 if self.has_zero else 0) - self.bias

    @property
    def max_exponent(self) -> int:
        """Exponent of `max`."""
        top = (1 << self.exponent_bits) - 1
        reserved = self.nan == "ieee" or (self.nan == "all_ones" and not self.has_zero)
        return top - int(reserved) - self.bias

    @property
    def eps(self) -> float:
        """Spacing of the values in [1, 2)."""
        return math.ldexp(1.0, -self.mantissa_bits)

    @property
    def max(self) -> float:
        """Largest finite value."""
        lost = 2 if self.max_is_even else 1
        return math.ldexp(2.0 - lost * self.eps, self.max_exponent)

    @property
    def max_is_even(self) -> bool:
        """Whether the mantissa of `max` is even, so that the tie above it rounds to it: NaN took the odd code."""
        return self.nan == "all_ones" and self.has_zero

    @property
    def min_normal(self) -> float:
        """Smallest positive value of full precision."""
        return math.ldexp(1.0, self.min_exponent)

    @property
    def min_subnormal(self) -> float:
        """Smallest positive value; in E8M0, which has no subnormals, that is `min_normal`."""
        return math.ldexp(1.0, self.min_exponent - self.mantissa_bits)


FP32 = FloatSpec("FP32", 8, 23, 127, signed=True, has_inf=True, nan="ieee", dtype=torch.float32)
"""IEEE 754 binary32."""
TF32 = FloatSpec("TF32", 8, 10, 127, signed=True, has_inf=True, nan="ieee")
"""NVIDIA TensorFloat-32: FP32's exponent, FP16's mantissa, 19 bits; held in FP32 words."""
BF16 = FloatSpec("BF16", 8, 7, 127, signed=True, has_inf=True, nan="ieee", dtype=torch.bfloat16)
"""bfloat16: the upper half of an FP32 word."""
FP16 = FloatSpec("FP16", 5, 10, 15, signed=True, has_inf=True, nan="ieee", dtype=torch.float16)
"""IEEE 754 binary16."""
E4M3 = FloatSpec("E4M3", 4, 3, 7, signed=True, has_inf=False, nan="all_ones", dtype=torch.float8_e4m3fn)
"""OCP 8-bit Floating Point Specification (OFP8) 1.0, E4M3: largest 448, no Inf, NaN is S.1111.111."""
E5M2 = FloatSpec("E5M2", 5, 2, 15, signed=True, has_inf=True, nan="ieee", dtype=torch.float8_e5m2)
"""OCP OFP8 1.0, E5M2: IEEE's rules for Inf and NaN, largest 57344."""
E2M1 = FloatSpec("E2M1", 2, 1, 1, signed=True, has_inf=False, nan="none")
"""FP4 of the OCP Microscaling Formats (MX) Specification 1.0, 5.3.3: ±{0, 0.5, 1, 1.5, 2, 3, 4, 6}, no Inf, no NaN."""
E8M0 = FloatSpec("E8M0", 8, 0, 127, signed=False, has_inf=False, nan="all_ones", dtype=torch.float8_e8m0fnu)
"""Scale format of OCP MX 1.0, 5.4.1: 2**-127 to 2**127, code 255 is NaN; no sign, no zero, no Inf."""

FORMATS: dict[str, FloatSpec] = {spec.name: spec for spec in (FP32, TF32, BF16, FP16, E4M3, E5M2, E2M1, E8M0)}
"""Every format by its name."""


def codes(spec: FloatSpec) -> Tensor:
    """Returns the value of every code of a format of at most 8 bits, by the format's definition.

    Args:
        spec: the format.

    Returns:
        FP32 values `[2**spec.bits]` on CPU: entry i is what code i means; NaN and ±Inf where it means those.

    Raises:
        ValueError: the format is wider than 8 bits.
    """
    if spec.bits > 8:
        raise ValueError(f"codes: {spec.name} has {spec.bits} bits; only formats of at most 8 bits are listed by code.")
    code = torch.arange(2**spec.bits)
    mantissa = code & (2**spec.mantissa_bits - 1)
    exponent = (code >> spec.mantissa_bits) & (2**spec.exponent_bits - 1)
    fraction = mantissa.double() * spec.eps
    if spec.has_zero:
        subnormal = torch.ldexp(fraction, torch.tensor(spec.min_exponent))
        value = torch.where(exponent == 0, subnormal, torch.ldexp(1.0 + fraction, exponent - spec.bias))
    else:
        value = torch.ldexp(torch.ones_like(fraction), exponent - spec.bias)
    value = _with_specials(value, exponent, mantissa, spec)
    if spec.signed:
        value = torch.where(code >= 2 ** (spec.bits - 1), -value, value)
    return value.float()


def _with_specials(value: Tensor, exponent: Tensor, mantissa: Tensor, spec: FloatSpec) -> Tensor:
    top = exponent == 2**spec.exponent_bits - 1
    if spec.nan == "ieee":
        return torch.where(top, torch.where(mantissa == 0, math.inf, math.nan), value)
    if spec.nan == "all_ones":
        return torch.where(top & (mantissa == 2**spec.mantissa_bits - 1), math.nan, value)
    return value
