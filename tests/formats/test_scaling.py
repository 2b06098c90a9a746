from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
import torch

from lightning_snnprec.formats import (
    E2M1,
    E4M3,
    E5M2,
    FloatSpec,
    Scale,
    amax_of,
    quantize_current,
    quantize_tensor,
    random_bits,
    scale_for,
)
from tests.formats.points import assert_same_bits, random_floats

FLOAT32_MAX = torch.finfo(torch.float32).max


@pytest.mark.parametrize("spec", [E4M3, E5M2, E2M1], ids=lambda spec: spec.name)
@pytest.mark.parametrize("margin", [0, 2, -1])
def test_scale_is_max_over_amax_rounded_once(spec: FloatSpec, margin: int) -> None:
    amax = random_floats(20001).abs()
    amax = amax[amax.isfinite() & (amax > 1e-30)]
    wanted = np.float32(spec.max * 2.0**-margin) / amax.numpy()
    assert_same_bits(scale_for(amax, spec, margin), torch.from_numpy(wanted), amax)


def test_power_of_two_scale_is_the_largest_not_above() -> None:
    amax = random_floats(20001).abs()
    amax = amax[amax.isfinite() & (amax > 1e-30)]
    scale, power = scale_for(amax, E4M3), scale_for(amax, E4M3, power_of_two=True)
    assert torch.equal(torch.frexp(power).mantissa, torch.full_like(power, 0.5))
    assert ((power <= scale) & (scale < 2 * power)).all()


def test_scale_at_the_ends() -> None:
    amax = torch.tensor([0.0, 448.0, 1e-45, 1e-38, FLOAT32_MAX])
    assert scale_for(amax, E4M3).tolist()[:4] == [1.0, 1.0, FLOAT32_MAX, FLOAT32_MAX]
    assert scale_for(amax, E4M3, power_of_two=True).tolist()[:4] == [1.0, 1.0, 2.0**127, 2.0**127]
    assert (scale_for(amax, E4M3, margin=100) > 0).all()


@pytest.mark.parametrize("bad", [math.inf, math.nan, -1.0])
def test_amax_without_a_scale_is_refused(bad: float) -> None:
    with pytest.raises(ValueError, match="1 of 3 amax values are negative or not finite"):
        scale_for(torch.tensor([1.0, bad, 2.0]), E4M3)
    assert scale_for(torch.tensor([1.0, bad, 2.0]), E4M3, validate=False).tolist() == [448.0, 1.0, 224.0]


@pytest.mark.parametrize("margin", [101, -101, 0.5, True])
def test_bad_margin_is_refused(margin: object) -> None:
    with pytest.raises(ValueError, match="needs an int from -100 to 100"):
        scale_for(torch.ones(()), E4M3, margin)  # type: ignore[arg-type]


def test_amax() -> None:
    assert amax_of(torch.tensor([1.0, -3.0])).item() == 3.0
    assert amax_of(torch.tensor([], dtype=torch.float16)).item() == 0.0
    assert amax_of(torch.tensor([1.0, math.nan])).isnan()
    assert amax_of(torch.tensor([2.0], dtype=torch.bfloat16)).dtype == torch.float32


@pytest.mark.parametrize(("spec", "kind"), [(E4M3, ml_dtypes.float8_e4m3fn), (E5M2, ml_dtypes.float8_e5m2)])
def test_quantized_tensor_equals_ml_dtypes(spec: FloatSpec, kind: type) -> None:
    x = torch.randn(37, 53) * 3
    scale = np.float32(spec.max) / np.float32(x.abs().max())
    scaled = np.clip(x.numpy() * scale, -spec.max, spec.max)
    payload = scaled.astype(kind).astype(np.float32)
    found = quantize_current(x, spec)
    assert found.scale.values.item() == scale
    assert_same_bits(found.payload, torch.from_numpy(payload))
    assert_same_bits(found.restored, torch.from_numpy(payload / scale))
    assert not found.saturated.any()
    assert found.payload.abs().max() == spec.max


@pytest.mark.parametrize("spec", [E4M3, E5M2, E2M1], ids=lambda spec: spec.name)
def test_zeros_come_out_as_zeros(spec: FloatSpec) -> None:
    found = quantize_current(torch.zeros(3, 5), spec)
    assert found.scale.values.item() == 1.0
    assert_same_bits(found.restored, torch.zeros(3, 5))
    assert not found.saturated.any()


def test_saturated_positions_are_marked() -> None:
    x = torch.tensor([1.0, -100.0, 460.0, 465.0, -2000.0, math.inf, 0.0, math.nan])
    found = quantize_tensor(x, E4M3, torch.tensor(1.0))
    assert found.saturated.tolist() == [False, False, False, True, True, True, False, False]
    assert found.payload[:7].tolist() == [1.0, -96.0, 448.0, 448.0, -448.0, 448.0, 0.0]
    assert found.payload[7].isnan()


def test_scale_per_channel_broadcasts() -> None:
    x = torch.randn(3, 7) * torch.tensor([[1e-3], [1.0], [1e3]])
    scale = scale_for(x.abs().amax(1, keepdim=True), E4M3)
    found = quantize_tensor(x, E4M3, scale)
    for row in range(3):
        assert_same_bits(found.restored[row], quantize_current(x[row], E4M3).restored)


def test_stochastic_rounding_is_passed_on() -> None:
    x = torch.randn(1001)
    bits = random_bits(x)
    first, again = (quantize_current(x, E5M2, "stochastic", bits) for _ in range(2))
    assert_same_bits(first.payload, again.payload)
    assert not torch.equal(first.payload, quantize_current(x, E5M2).payload)


def test_bad_scales_are_refused() -> None:
    x = torch.randn(3, 5)
    for value in (0.0, math.inf, math.nan, -1.0):
        with pytest.raises(ValueError, match="not finite and over 0"):
            quantize_tensor(x, E4M3, torch.tensor(value))
    with pytest.raises(ValueError, match=r"\(7,\) against x of \(3, 5\)"):
        quantize_tensor(x, E4M3, torch.ones(7))
    with pytest.raises(ValueError, match=r"\(2, 3, 5\) against"):
        quantize_tensor(x, E4M3, torch.ones(2, 3, 5))
    with pytest.raises(ValueError, match="needs an FP32 tensor"):
        quantize_tensor(x, E4M3, torch.ones((), dtype=torch.float64))
    with pytest.raises(ValueError, match="made for E5M2, but E4M3 was asked"):
        quantize_tensor(x, E4M3, quantize_current(x, E5M2).scale)
    with pytest.raises(ValueError, match="meaning 'decode'"):
        quantize_tensor(x, E4M3, Scale(torch.ones(()), None, None, "given", "E4M3", "decode"))


def test_non_finite_tensor_has_no_current_scale() -> None:
    x = torch.tensor([1.0, math.inf, 2.0])
    with pytest.raises(ValueError, match="Inf and NaN"):
        quantize_current(x, E4M3)
    found = quantize_current(x, E4M3, validate=False)
    assert found.scale.values.item() == 1.0
    assert found.payload.tolist() == [1.0, 448.0, 2.0]
    assert found.saturated.tolist() == [False, True, False]
