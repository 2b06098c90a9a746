from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch

from lightning_snnprec.formats import BF16, E2M1, E4M3, E5M2, E8M0, FORMATS, FP16, FP32, TF32, FloatSpec, codes

ML_DTYPES = {
    "FP16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "FP32": np.float32,
    "E4M3": ml_dtypes.float8_e4m3fn,
    "E5M2": ml_dtypes.float8_e5m2,
    "E2M1": ml_dtypes.float4_e2m1fn,
    "E8M0": ml_dtypes.float8_e8m0fnu,
}


@pytest.mark.parametrize(
    ("spec", "bits", "largest", "min_normal", "min_subnormal", "eps"),
    [
        (FP32, 32, (2 - 2**-23) * 2.0**127, 2.0**-126, 2.0**-149, 2**-23),
        (TF32, 19, (2 - 2**-10) * 2.0**127, 2.0**-126, 2.0**-136, 2**-10),
        (BF16, 16, (2 - 2**-7) * 2.0**127, 2.0**-126, 2.0**-133, 2**-7),
        (FP16, 16, 65504, 2**-14, 2**-24, 2**-10),
        (E4M3, 8, 448, 2**-6, 2**-9, 2**-3),
        (E5M2, 8, 57344, 2**-14, 2**-16, 2**-2),
        (E2M1, 4, 6, 1, 0.5, 0.5),
        (E8M0, 8, 2.0**127, 2.0**-127, 2.0**-127, 1),
    ],
    ids=lambda value: value.name if isinstance(value, FloatSpec) else "",
)
def test_limits_are_those_of_the_specifications(
    spec: FloatSpec, bits: int, largest: float, min_normal: float, min_subnormal: float, eps: float
) -> None:
    assert (spec.bits, spec.max, spec.min_normal, spec.min_subnormal, spec.eps) == (
        bits, largest, min_normal, min_subnormal, eps,
    )  # fmt: skip


@pytest.mark.parametrize("name", sorted(ML_DTYPES))
def test_limits_are_those_of_ml_dtypes(name: str) -> None:
    info, spec = ml_dtypes.finfo(ML_DTYPES[name]), FORMATS[name]
    assert float(info.max) == spec.max
    assert float(info.smallest_normal) == spec.min_normal
    assert float(info.eps) == spec.eps


@pytest.mark.parametrize("spec", [FP32, BF16, FP16, E4M3, E5M2], ids=lambda spec: spec.name)
def test_limits_are_those_of_torch(spec: FloatSpec) -> None:
    info = torch.finfo(spec.dtype)
    assert (info.max, info.smallest_normal, info.eps) == (spec.max, spec.min_normal, spec.eps)


@pytest.mark.parametrize("spec", [E4M3, E5M2, E2M1, E8M0], ids=lambda spec: spec.name)
def test_every_code_means_what_ml_dtypes_says(spec: FloatSpec) -> None:
    every = np.arange(2**spec.bits, dtype=np.uint8).view(ML_DTYPES[spec.name]).astype(np.float32)
    torch.testing.assert_close(codes(spec), torch.from_numpy(every), rtol=0, atol=0, equal_nan=True)
    assert torch.equal(torch.signbit(codes(spec)), torch.from_numpy(np.signbit(every)))


@pytest.mark.parametrize("spec", [E4M3, E5M2, E8M0], ids=lambda spec: spec.name)
def test_every_code_means_what_torch_says(spec: FloatSpec) -> None:
    assert spec.dtype is not None
    every = torch.arange(256, dtype=torch.uint8).view(spec.dtype).float()
    torch.testing.assert_close(codes(spec), every, rtol=0, atol=0, equal_nan=True)


def test_special_codes() -> None:
    assert codes(E4M3).isnan().nonzero().flatten().tolist() == [0x7F, 0xFF]
    assert codes(E5M2).isnan().nonzero().flatten().tolist() == [0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF]
    assert codes(E5M2).isinf().nonzero().flatten().tolist() == [0x7C, 0xFC]
    assert codes(E2M1).tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]
    assert codes(E8M0).isnan().nonzero().flatten().tolist() == [0xFF]


def test_codes_of_a_wide_format_are_refused() -> None:
    with pytest.raises(ValueError, match="FP16 has 16 bits"):
        codes(FP16)
