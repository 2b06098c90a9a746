from __future__ import annotations

import math

import pytest
import torch

from lightning_snnprec.formats import BF16, E2M1, E4M3, FP32, FloatSpec, metrics, round_to

PAIRS = [metrics.absolute, metrics.relative, metrics.sqnr_db, metrics.cosine]


def of(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_values_by_hand() -> None:
    a, reference = of(1.0, -2.5, 4.0), of(1.0, -2.0, 5.0)
    assert metrics.absolute(a, reference).item() == 1.0
    assert metrics.relative(a, reference).item() == 0.25
    assert metrics.sqnr_db(a, reference).item() == pytest.approx(10 * math.log10(30 / 1.25), rel=1e-14)
    assert metrics.cosine(a, reference).item() == pytest.approx(26 / math.sqrt(23.25 * 30), rel=1e-14)
    assert metrics.topk_agreement(of(5, 1, 4, 2), of(5, 4, 1, 2), 2).item() == 0.5
    rows = torch.tensor([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]])
    assert metrics.topk_agreement(rows, rows.flip(0), 1).item() == 0.0
    assert metrics.topk_agreement(rows, rows.flip(0), 3).item() == 1.0


@pytest.mark.parametrize(
    ("spec", "reference", "a", "ulps"),
    [
        (E4M3, 1.0, 1.125, 1.0),
        (E4M3, 1.99, 2.115, 1.0),
        (E4M3, 448.0, 416.0, 1.0),
        (E4M3, 1000.0, 968.0, 1.0),
        (E4M3, 0.0, 2**-9, 1.0),
        (E4M3, 2**-12, 2**-12 + 2**-10, 0.5),
        (E2M1, 3.0, 6.0, 3.0),
        (FP32, 1.0, 1.0 + 2**-23, 1.0),
        (FP32, 0.0, 2.0**-149, 1.0),
        (BF16, -4.0, -4.0625, 2.0),
    ],
)
def test_ulp_is_in_units_of_the_formats_spacing(spec: FloatSpec, reference: float, a: float, ulps: float) -> None:
    assert metrics.ulp(of(a), of(reference), spec).item() == pytest.approx(ulps, rel=1e-12)


@pytest.mark.parametrize("spec", [E4M3, BF16], ids=lambda spec: spec.name)
def test_rounding_to_nearest_errs_by_half_an_ulp_at_most(spec: FloatSpec) -> None:
    x = torch.randn(10001)
    assert 0.49 < metrics.ulp(round_to(x, spec), x, spec).item() <= 0.5
    assert 0.98 < metrics.ulp(round_to(x, spec, "toward_zero"), x, spec).item() < 1.0


def test_sqnr_gains_six_decibels_a_bit() -> None:
    x = torch.randn(100001)
    gain = metrics.sqnr_db(round_to(x, BF16), x) - metrics.sqnr_db(round_to(x, E4M3), x)
    assert gain.item() == pytest.approx(4 * 20 * math.log10(2), abs=0.5)


def test_zeros_follow_the_stated_rule() -> None:
    zero, one = of(0.0, 0.0), of(0.0, 1.0)
    assert [m(zero, -zero).item() for m in PAIRS] == [0.0, 0.0, math.inf, 1.0]
    assert [m(one, zero).item() for m in PAIRS] == [1.0, math.inf, -math.inf, 0.0]
    assert [m(zero, one).item() for m in PAIRS] == [1.0, 1.0, 0.0, 0.0]
    assert [m(one, one).item() for m in PAIRS] == [0.0, 0.0, math.inf, 1.0]


def test_nan_stays_visible() -> None:
    bad, good = of(1.0, math.nan), of(1.0, 2.0)
    for a, reference in ((bad, good), (good, bad), (bad, bad)):
        assert all(m(a, reference).isnan() for m in PAIRS)
        assert metrics.ulp(a, reference, E4M3).isnan()
        assert metrics.topk_agreement(a, reference, 1).isnan()


def test_infinities_follow_the_stated_rule() -> None:
    inf = of(1.0, math.inf)
    assert [metrics.absolute(inf, inf).item(), metrics.relative(inf, inf).item()] == [0.0, 0.0]
    assert metrics.sqnr_db(inf, inf).item() == math.inf
    assert metrics.absolute(inf, of(1.0, -math.inf)).item() == math.inf
    assert metrics.sqnr_db(inf, of(1.0, 2.0)).item() == -math.inf
    assert metrics.cosine(inf, inf).isnan()


def test_extreme_magnitudes_neither_overflow_nor_vanish() -> None:
    for size in (1e-200, 1e200):
        assert metrics.sqnr_db(of(1.1) * size, of(1.0) * size).item() == pytest.approx(20, rel=1e-9)
        assert metrics.cosine(of(3.0, 4.0) * size, of(4.0, 3.0) * size).item() == pytest.approx(0.96, rel=1e-12)


def test_results_are_fp64_scalars_of_any_input() -> None:
    a = torch.randn(3, 7).bfloat16().requires_grad_()
    found = [m(a, a) for m in PAIRS] + [metrics.ulp(a, a, BF16), metrics.topk_agreement(a, a, 3)]
    assert all(f.dtype == torch.float64 and f.shape == () and not f.requires_grad for f in found)
    assert metrics.cosine(a, a).item() == pytest.approx(1.0, abs=1e-15)


def test_ties_go_to_the_lower_index() -> None:
    assert metrics.topk_agreement(of(1, 1, 0), of(1, 0, 0), 1).item() == 1.0
    assert metrics.topk_agreement(of(0, 1, 1), of(0, 0, 1), 1).item() == 0.0


def test_bad_shapes_are_refused() -> None:
    for metric in PAIRS:
        with pytest.raises(ValueError, match=r"one shape.*\(2,\) and \(1,\)"):
            metric(of(1, 2), of(1))
        with pytest.raises(ValueError, match="at least one element"):
            metric(of(), of())
    with pytest.raises(ValueError, match="k=3 needs rows"):
        metrics.topk_agreement(of(1, 2), of(1, 2), 3)
    with pytest.raises(ValueError, match="k=0"):
        metrics.topk_agreement(of(1, 2), of(1, 2), 0)
