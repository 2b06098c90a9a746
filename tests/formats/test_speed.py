from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import torch

from lightning_snnprec.formats import E4M3, round_to

LIMIT = 3.0


def seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def test_rounding_takes_at_most_three_times_torchs_cast(capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.randn(1 << 24)
    # Both in turn, and the best of each: what else runs on the machine then hits both alike.
    pairs = [
        (seconds(lambda: round_to(x, E4M3)), seconds(lambda: x.to(torch.float8_e4m3fn).to(torch.float32)))
        for _ in range(5)
    ]
    ours, cast = (min(times) for times in zip(*pairs, strict=True))
    with capsys.disabled():
        print(f"\nround_to(2**24 elements, E4M3): {ours:.3f} s, torch's cast {cast:.3f} s, ratio {ours / cast:.2f}")
    assert ours <= LIMIT * cast
