"""Rounding to nearest against torch's casts and ml_dtypes, bit for bit.

Which rule each reference follows, and so what `round_to` is asked for:

| format    | torch's CPU cast                                  | ml_dtypes                                   |
|-----------|---------------------------------------------------|---------------------------------------------|
| E4M3      | to 2.11: overflow and Inf give NaN; from 2.13: 448 | overflow and Inf give NaN                   |
| E5M2      | overflow gives Inf                                | overflow gives Inf                          |
| FP16 BF16 | overflow gives Inf                                | overflow gives Inf                          |
| E8M0      | overflow and Inf give NaN; the sign is dropped    | overflow, Inf, negative and zero give NaN   |
| E2M1      | no cast                                           | overflow and Inf saturate; NaN gives a zero |

Left out of the comparison: negative E8M0 with torch, zeros in E8M0 and NaN in E2M1 with ml_dtypes.
Torch changed E4M3 in pull request 178817, between 2.11 and 2.13; 2.12 may do either.
"""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
import torch
from torch import Tensor

from lightning_snnprec.formats import (
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
    overflows,
    random_bits,
    round_to,
)
from tests.formats.points import assert_same_bits, critical_points, grid, random_floats
from tests.formats.test_spec import ML_DTYPES

TORCH_RELEASE = tuple(int(part) for part in re.findall(r"\d+", torch.__version__)[:2])
EVERY = pytest.mark.parametrize("spec", FORMATS.values(), ids=FORMATS)
GRIDDED = pytest.mark.parametrize("spec", [E4M3, E5M2, E2M1, E8M0, FP16, BF16], ids=lambda spec: spec.name)
MODES = pytest.mark.parametrize("mode", ["nearest", "toward_zero", "stochastic"])


def torch_saturates(spec: FloatSpec) -> bool:
    if spec != E4M3 or TORCH_RELEASE < (2, 12):
        return False
    if TORCH_RELEASE == (2, 12):
        return bool(torch.tensor(1e4).to(torch.float8_e4m3fn).float() == 448.0)
    return True


def rounded(x: Tensor, spec: FloatSpec, mode: str, **options: bool) -> Tensor:
    bits = random_bits(x) if mode == "stochastic" else None
    return round_to(x, spec, mode, bits, **options)  # type: ignore[arg-type]


def inputs(spec: FloatSpec) -> Tensor:
    return torch.cat([critical_points(spec), random_floats(20001), torch.randn(5001) * spec.max / 3])


@pytest.mark.parametrize("spec", [E4M3, E5M2, E8M0, FP16, BF16], ids=lambda spec: spec.name)
def test_nearest_equals_torch_bit_for_bit(spec: FloatSpec) -> None:
    x = inputs(spec)
    x = x if spec.signed else x[(x >= 0) | x.isnan()]
    wanted = x.to(spec.dtype).float()
    assert_same_bits(round_to(x, spec, saturate=torch_saturates(spec)), wanted, x)


@GRIDDED
def test_nearest_equals_ml_dtypes_bit_for_bit(spec: FloatSpec) -> None:
    x = inputs(spec)
    if spec == E8M0:
        x = x[x != 0]
    elif spec == E2M1:
        x = x[~x.isnan()]
    with np.errstate(all="ignore"):
        wanted = torch.from_numpy(x.numpy().astype(ML_DTYPES[spec.name]).astype(np.float32))
    assert_same_bits(round_to(x, spec, saturate=spec == E2M1), wanted, x)


def test_nearest_to_tf32_equals_integer_arithmetic() -> None:
    x = random_floats(200001)
    ties = [1 + 2**-11, 1 + 3 * 2**-11, 2.0**-137, 3 * 2.0**-137]
    x = torch.cat([x[~x.isnan()], torch.tensor([0.0, -0.0, math.inf, -math.inf, 3.4028235e38, *ties])])
    word = x.view(torch.int32).long() & 0xFFFFFFFF
    word = ((word + 0xFFF + ((word >> 13) & 1)) >> 13) << 13
    wanted = torch.from_numpy(word.numpy().astype(np.uint32).view(np.float32))
    assert_same_bits(round_to(x, TF32, saturate=False), wanted, x)


def test_nearest_to_fp32_from_fp64_equals_torch() -> None:
    x = torch.randn(100001, dtype=torch.float64) * torch.exp2(torch.randint(-160, 140, (100001,)).double())
    x = torch.cat([x, torch.tensor([0.0, -0.0, math.inf, math.nan, 3.4028235677973366e38, 1e-46], dtype=torch.float64)])
    found = round_to(x, FP32, saturate=False)
    assert found.dtype == torch.float64
    assert_same_bits(found.float(), x.float())
    assert torch.equal(found.nan_to_num(), x.float().double().nan_to_num())


def test_fp64_is_rounded_once() -> None:
    # In FP32 this would be the midpoint of 1 and 1.125, and the tie would go to 1.
    x = torch.tensor([1.0625 + 2.0**-45, -1.0625 - 2.0**-45, 1.0625], dtype=torch.float64)
    assert round_to(x, E4M3).tolist() == [1.125, -1.125, 1.0]


@GRIDDED
def test_saturating_clips_to_the_largest_value(spec: FloatSpec) -> None:
    x = inputs(spec)
    open_ended, closed = round_to(x, spec, saturate=False), round_to(x, spec)
    finite = open_ended.isfinite()
    assert_same_bits(closed[finite], open_ended[finite], x[finite])
    over = overflows(x, spec) & ~x.isnan()
    assert over.any()
    if spec.signed:
        assert_same_bits(closed[over], torch.full_like(x[over], spec.max).copysign(x[over]))
    else:
        assert torch.equal(closed[over & (x > 0)], torch.full_like(x[over & (x > 0)], spec.max))
        assert closed[x < 0].isnan().all()
    assert torch.equal(~finite & ~x.isnan() & ((x >= 0) | spec.signed), over & ((x >= 0) | spec.signed)) or spec == E2M1


@pytest.mark.parametrize(
    ("spec", "last_kept", "first_lost"),
    [(E4M3, 464.0, math.nextafter(464.0, 500)), (E5M2, math.nextafter(61440, 0), 61440.0), (E2M1, 6.99, 7.0),
     (FP16, 65519.9, 65520.0)],
    ids=["E4M3", "E5M2", "E2M1", "FP16"],
)  # fmt: skip
def test_overflow_begins_where_rounding_with_unbounded_exponent_exceeds_max(
    spec: FloatSpec, last_kept: float, first_lost: float
) -> None:
    x = torch.tensor([last_kept, first_lost, -last_kept, -first_lost, math.inf], dtype=torch.float64)
    assert overflows(x, spec).tolist() == [False, True, False, True, True]
    assert round_to(x[:1], spec, saturate=False).item() == spec.max


def test_special_values_follow_the_table() -> None:
    x = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, -3.0, 1e-45])
    nan, inf = math.nan, math.inf
    table = {
        (E4M3, True): [nan, 448, -448, 0.0, -0.0, -3, 0.0],
        (E4M3, False): [nan, nan, nan, 0.0, -0.0, -3, 0.0],
        (E5M2, True): [nan, 57344, -57344, 0.0, -0.0, -3, 0.0],
        (E5M2, False): [nan, inf, -inf, 0.0, -0.0, -3, 0.0],
        (E2M1, True): [6, 6, -6, 0.0, -0.0, -3, 0.0],
        (E2M1, False): [6, 6, -6, 0.0, -0.0, -3, 0.0],
        (E8M0, True): [nan, 2.0**127, nan, 2.0**-127, 2.0**-127, nan, 2.0**-127],
        (E8M0, False): [nan, nan, nan, 2.0**-127, 2.0**-127, nan, 2.0**-127],
        (BF16, True): [nan, BF16.max, -BF16.max, 0.0, -0.0, -3, 0.0],
        (FP32, True): [nan, FP32.max, -FP32.max, 0.0, -0.0, -3, 1e-45],
        (FP32, False): [nan, inf, -inf, 0.0, -0.0, -3, 1e-45],
    }
    for (spec, saturate), wanted in table.items():
        for mode in ("nearest", "toward_zero"):
            assert_same_bits(rounded(x, spec, mode, saturate=saturate), torch.tensor(wanted), x)


@GRIDDED
def test_toward_zero_takes_the_largest_value_not_above(spec: FloatSpec) -> None:
    x = inputs(spec)
    x = x[x.isfinite()] if spec.signed else x[x.isfinite() & (x > 0)]
    values = grid(spec)
    below = (torch.searchsorted(values, x.abs().double(), right=True) - 1).clamp(min=0)
    wanted = values[below].float().copysign(x)
    assert_same_bits(round_to(x, spec, "toward_zero"), wanted, x)
    assert_same_bits(round_to(x, spec, "toward_zero", saturate=False), wanted, x)


@MODES
@GRIDDED
def test_values_of_the_format_stay_as_they_are(spec: FloatSpec, mode: str) -> None:
    values = torch.cat([grid(spec), -grid(spec)] if spec.signed else [grid(spec)]).float()
    assert_same_bits(rounded(values, spec, mode), values)
    assert_same_bits(rounded(values, spec, mode, saturate=False), values)


@MODES
@EVERY
def test_rounding_is_idempotent(spec: FloatSpec, mode: str) -> None:
    once = rounded(random_floats(20001), spec, mode)
    assert_same_bits(rounded(once, spec, mode), once)


@pytest.mark.parametrize("mode", ["nearest", "toward_zero"])
@EVERY
def test_rounding_is_monotonic(spec: FloatSpec, mode: str) -> None:
    x = torch.cat([random_floats(20001), torch.randn(20001) * 4])
    x = x[~x.isnan() & ((x >= 0) | spec.signed)].sort().values
    assert (rounded(x, spec, mode).diff() >= 0).all()


@pytest.mark.parametrize("saturate", [True, False])
@MODES
@pytest.mark.parametrize("spec", [E4M3, E5M2, E2M1, FP16, BF16, TF32, FP32], ids=lambda spec: spec.name)
def test_rounding_is_symmetric_in_the_sign(spec: FloatSpec, mode: str, saturate: bool) -> None:
    x = random_floats(20001)
    x = x[~x.isnan()]
    bits = random_bits(x) if mode == "stochastic" else None
    positive = round_to(x, spec, mode, bits, saturate)  # type: ignore[arg-type]
    assert_same_bits(round_to(-x, spec, mode, bits, saturate), -positive, x)  # type: ignore[arg-type]


@EVERY
def test_error_is_at_most_half_the_spacing(spec: FloatSpec) -> None:
    x = torch.randn(20001).abs().double() * min(spec.max / 8, 1e3)
    x = x[x <= spec.max]
    spacing = torch.exp2(x.log2().floor().clamp(min=spec.min_exponent) - spec.mantissa_bits)
    assert ((round_to(x, spec) - x).abs() <= spacing / 2).all()
    assert ((round_to(x, spec, "toward_zero") - x).abs() < spacing).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_inputs_are_promoted(dtype: torch.dtype) -> None:
    x = torch.randn(3, 7).to(dtype)
    assert_same_bits(round_to(x, E4M3), round_to(x.float(), E4M3))


@MODES
def test_shape_strides_and_pieces_do_not_matter(mode: str) -> None:
    x = torch.randn(3, 70001).t()
    bits = random_bits(x) if mode == "stochastic" else None
    found = round_to(x, E5M2, mode, bits)  # type: ignore[arg-type]
    assert found.shape == x.shape
    for column in range(3):
        piece = None if bits is None else bits[:, column]
        assert_same_bits(found[:, column], round_to(x[:, column], E5M2, mode, piece))  # type: ignore[arg-type]


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2)])
def test_scalars_and_empty_tensors(shape: tuple[int, ...]) -> None:
    assert_same_bits(round_to(torch.full(shape, 1.07), E4M3), torch.full(shape, 1.125))


def test_input_is_left_alone_and_no_gradient_flows() -> None:
    x = torch.randn(1001, requires_grad=True)
    before = x.detach().clone()
    assert not round_to(x, E4M3).requires_grad
    assert_same_bits(x.detach(), before)


def test_bad_arguments_are_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"mode='nearst'.*Did you mean 'nearest'"):
        round_to(torch.ones(2), E4M3, "nearst")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"(?s)2 arguments.*int64: needs a floating.*bits missing"):
        round_to(torch.ones(2, dtype=torch.int64), E4M3, "stochastic")
    with pytest.raises(ValueError, match="bits given"):
        round_to(torch.ones(2), E4M3, bits=torch.zeros(2, dtype=torch.int32))
    with pytest.raises(ValueError, match=r"float32, \(2,\): needs int32 or int64"):
        round_to(torch.ones(2), E4M3, "stochastic", torch.zeros(2))
    with pytest.raises(ValueError, match=r"of x's shape \(2,\)"):
        round_to(torch.ones(2), E4M3, "stochastic", torch.zeros(3, dtype=torch.int32))
