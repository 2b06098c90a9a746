"""Inputs at which a rounding goes wrong first, and a comparison bit by bit."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lightning_snnprec.formats import FloatSpec, codes

SPECIALS = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 1.1754944e-38, 3.4028235e38, -3.4028235e38]


def grid(spec: FloatSpec) -> Tensor:
    """The format's finite values that are not negative, ascending, as FP64."""
    if spec.bits <= 8:
        values = codes(spec).double()
    else:
        assert spec.dtype is not None
        values = torch.arange(-(2**15), 2**15, dtype=torch.int16).view(spec.dtype).double()
    return values[values.isfinite() & ~torch.signbit(values)].unique()


def critical_points(spec: FloatSpec) -> Tensor:
    """All values, all midpoints, the overflow's midpoint, their FP32 neighbours, both signs, and special values."""
    values = grid(spec)
    above = values[-1] + (values[-1] - values[-2])
    middles = torch.cat([values, above[None]]).unfold(0, 2, 1).mean(-1)
    exact = torch.cat([values, middles, above[None]])
    exact = exact[exact <= 3.4e38].float()
    inf = torch.tensor(math.inf)
    points = torch.cat([exact, exact.nextafter(inf), exact.nextafter(-inf)])
    return torch.cat([points, -points, torch.tensor(SPECIALS)])


def random_floats(count: int) -> Tensor:
    """FP32 of random bit patterns: every exponent, subnormals, some NaN and Inf."""
    return torch.randint(-(2**31), 2**31, (count,)).int().view(torch.float32)


def assert_same_bits(found: Tensor, wanted: Tensor, points: Tensor | None = None) -> None:
    """Equal bits, the sign of zero included; any NaN equals any NaN."""
    assert found.dtype == wanted.dtype == torch.float32
    assert found.shape == wanted.shape
    differs = (found.view(torch.int32) != wanted.view(torch.int32)) & ~(found.isnan() & wanted.isnan())
    where = found if points is None else points
    report = [f"{x!r}: {f!r}, not {w!r}" for x, f, w in zip(where[differs][:8].tolist(), found[differs].tolist(),
                                                            wanted[differs].tolist(), strict=False)]  # fmt: skip
    assert not differs.any(), f"{int(differs.sum())} of {differs.numel()} differ: {report}"
