from __future__ import annotations

import math

import pytest
import torch

from lightning_snnprec.formats import BF16, E2M1, E4M3, E5M2, E8M0, FP16, RANDOM_BITS, FloatSpec, random_bits, round_to
from tests.formats.points import assert_same_bits, random_floats

ALL = 1 << RANDOM_BITS


def mean_over_all_bits(x: float, spec: FloatSpec) -> float:
    """Exact: every value is a multiple of the spacing, and 2**24 of them sum without rounding in FP64."""
    every = torch.arange(ALL, dtype=torch.int32)
    found = round_to(torch.full((ALL,), x), spec, "stochastic", every)
    return float(found.double().sum() / ALL)


@pytest.mark.parametrize(
    ("spec", "low", "high"),
    [(E4M3, 2**-6, 448), (E5M2, 2**-14, 57344), (E2M1, 1, 6), (FP16, 2**-14, 60000), (BF16, 1e-30, 1e30),
     (E8M0, 1e-20, 1e20)],
    ids=lambda value: value.name if isinstance(value, FloatSpec) else "",
)  # fmt: skip
def test_mean_over_all_random_bits_is_exact(spec: FloatSpec, low: float, high: float) -> None:
    exponent = torch.empty(()).uniform_(math.log2(low), math.log2(high)).item()
    x = torch.tensor(2.0**exponent).item() * (-1 if spec.signed else 1)
    assert mean_over_all_bits(x, spec) == x


def test_mean_over_all_random_bits_is_exact_among_subnormals() -> None:
    x = torch.randint(1, 2**27, ()).item() * 2.0**-33
    x = torch.tensor(x).item()
    assert mean_over_all_bits(x, E4M3) == x


@pytest.mark.parametrize("x", [2.0**-40, 3.0000001e-4, 1e-30])
def test_what_24_bits_cannot_say_is_short_by_less_than_one_of_them(x: float) -> None:
    x = torch.tensor(x).item()
    assert 0 <= x - mean_over_all_bits(x, E4M3) < E4M3.min_subnormal / ALL


@pytest.mark.parametrize("spec", [E4M3, E5M2, E2M1, BF16], ids=lambda spec: spec.name)
def test_share_rounded_up_passes_a_binomial_test(spec: FloatSpec, seed: int) -> None:
    share = torch.rand(()).item()
    low, step = 1.0, spec.eps
    x = torch.full((1 << 18,), low + share * step)
    share = (x[0].item() - low) / step
    generator = torch.Generator().manual_seed(seed)
    found = round_to(x, spec, "stochastic", random_bits(x, generator))
    assert ((found == low) | (found == low + step)).all()
    ups = int((found != low).sum())
    # Six standard deviations: a right sampler fails twice in a thousand million runs.
    assert abs(ups - x.numel() * share) <= 6 * math.sqrt(x.numel() * share * (1 - share)) + 1


def test_same_bits_give_the_same_tensor() -> None:
    x = torch.randn(10001)
    state = torch.Generator().manual_seed(5)
    first = random_bits(x, state)
    again = random_bits(x, torch.Generator().manual_seed(5))
    assert torch.equal(first, again)
    assert 0 <= int(first.min()) <= int(first.max()) < ALL
    assert_same_bits(round_to(x, E4M3, "stochastic", first), round_to(x, E4M3, "stochastic", again))
    other = round_to(x, E4M3, "stochastic", random_bits(x, state))
    assert not torch.equal(round_to(x, E4M3, "stochastic", first), other)


def test_only_the_low_24_bits_count() -> None:
    x = torch.randn(10001)
    bits = random_bits(x)
    wanted = round_to(x, E4M3, "stochastic", bits)
    assert_same_bits(round_to(x, E4M3, "stochastic", bits.long() + (7 << 24)), wanted)
    assert_same_bits(round_to(x, E4M3, "stochastic", bits | torch.tensor(-(1 << 24), dtype=torch.int32)), wanted)


@pytest.mark.parametrize("spec", [E4M3, E5M2, E2M1, FP16, BF16], ids=lambda spec: spec.name)
def test_result_is_one_of_both_neighbours(spec: FloatSpec) -> None:
    x = random_floats(50001)
    x = x[x.abs() <= spec.max]
    toward = round_to(x, spec, "toward_zero")
    found = round_to(x, spec, "stochastic", random_bits(x))
    ulp = torch.exp2(x.double().abs().log2().floor().clamp(min=spec.min_exponent) - spec.mantissa_bits)
    away = (found.double() - toward.double()).abs()
    assert ((away == 0) | (away == ulp)).all()
    assert torch.equal(torch.signbit(found), torch.signbit(x))
    assert (found == toward)[x == toward].all()


def test_above_max_only_the_open_ended_rounding_overflows() -> None:
    x = torch.tensor([470.0, -470.0])
    always, never = (torch.full((2,), bits, dtype=torch.int32) for bits in (ALL - 1, 0))
    assert round_to(x, E4M3, "stochastic", always).tolist() == [448.0, -448.0]
    assert round_to(x, E4M3, "stochastic", always, saturate=False).isnan().all()
    assert round_to(x, E4M3, "stochastic", never, saturate=False).tolist() == [448.0, -448.0]
    assert round_to(60000.0 * x.sign(), E5M2, "stochastic", always, saturate=False).tolist() == [math.inf, -math.inf]
