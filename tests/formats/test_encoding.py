from __future__ import annotations

import math

import pytest
import torch

from lightning_snnprec.formats import E2M1, E4M3, E5M2, E8M0, FP16, FloatSpec, codes, decode, encode, round_to
from tests.formats.points import assert_same_bits

NARROW = pytest.mark.parametrize("spec", [E4M3, E5M2, E2M1, E8M0], ids=lambda spec: spec.name)


@NARROW
def test_every_code_survives_decoding_and_encoding(spec: FloatSpec) -> None:
    every = torch.arange(2**spec.bits, dtype=torch.uint8)
    numbers = ~codes(spec).isnan()
    again = encode(decode(every, spec), spec)
    assert torch.equal(again[numbers], every[numbers])
    assert decode(again, spec)[~numbers].isnan().all()


@pytest.mark.parametrize("spec", [E4M3, E5M2], ids=lambda spec: spec.name)
def test_codes_are_the_bytes_of_torch(spec: FloatSpec) -> None:
    assert spec.dtype is not None
    x = torch.cat([torch.randn(10001), torch.tensor([0.0, -0.0, spec.max, -spec.max, math.nan])]).view(2, -1)
    assert torch.equal(encode(x, spec), x.to(spec.dtype).view(torch.uint8))


@NARROW
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_encoding_rounds_as_round_to_does(spec: FloatSpec, dtype: torch.dtype) -> None:
    x = (torch.randn(10001) * 100).abs().to(dtype)
    assert_same_bits(decode(encode(x, spec), spec), round_to(x, spec).float())


def test_infinities_keep_their_code_where_the_format_has_one() -> None:
    x = torch.tensor([math.inf, -math.inf, 1e9, -1e9])
    assert encode(x, E5M2).tolist() == [0x7C, 0xFC, 0x7B, 0xFB]
    assert encode(x, E4M3).tolist() == [0x7E, 0xFE, 0x7E, 0xFE]
    assert encode(x, E2M1).tolist() == [0x7, 0xF, 0x7, 0xF]


def test_wide_formats_and_other_dtypes_are_refused() -> None:
    with pytest.raises(ValueError, match="FP16 has 16 bits"):
        encode(torch.ones(2), FP16)
    with pytest.raises(ValueError, match="must be uint8"):
        decode(torch.ones(2, dtype=torch.int64), E4M3)
