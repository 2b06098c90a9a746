from __future__ import annotations

import itertools

import pytest
import torch

from lightning_snnprec.kernels.policy import CHECKPOINT_EVERY, DTYPES, kept_for_backward, kept_rows, membrane
from lightning_snnprec.kernels.switches import CHECKPOINTS, DIFFERENCES, NOTHING
from lightning_snnprec.kernels.tiles import alignment, backward_tile, forward_tile
from lightning_snnprec.kernels.traffic import traffic

BF16, FP32, E4M3 = torch.bfloat16, torch.float32, torch.float8_e4m3fn


def test_a_change_of_t_or_batch_within_a_bucket_keeps_the_kernel() -> None:
    for low, high in ((5, 8), (9, 16), (17, 1000)):
        tiles = {backward_tile(T, 2, NOTHING, n, 16, 132) for T in (low, high) for n in (2**22, 2**22 + 16, 2**30)}
        assert len(tiles) == 1
    assert len({forward_tile(T, 2, 2**22, 16, 132) for T in (5, 8, 100)}) == 1


def test_segments_are_powers_of_two_that_checkpoints_align_with() -> None:
    for T, itemsize, align in itertools.product(range(1, 70), (1, 2, 4), (1, 2, 4, 8, 16)):
        forward = forward_tile(T, itemsize, 2**20, align, 132)
        backward = backward_tile(T, itemsize, NOTHING, 2**20, align, 132)
        assert CHECKPOINT_EVERY % forward.segment == 0
        assert backward.segment == CHECKPOINT_EVERY or backward.segment >= T
        for tile in (forward, backward):
            elements = tile.block // 128
            assert tile.block == 128 * elements
            assert 1 <= elements <= align
            assert elements * itemsize <= 16


def test_few_neurons_are_spread_over_the_device() -> None:
    assert forward_tile(4, 2, 132 * 128, 16, 132).block == 128
    assert forward_tile(4, 2, 2**24, 16, 132).block == 1024


@pytest.mark.parametrize(
    ("distances", "expected"), [((16, 0, 32), 16), ((1000003, 0), 1), ((24,), 8), ((2**40, 6), 2), ((128, 4), 4)]
)
def test_alignment(distances: tuple[int, ...], expected: int) -> None:
    assert alignment(*distances) == expected


def test_what_is_kept() -> None:
    assert kept_for_backward(BF16, FP32, 16) == NOTHING
    assert kept_for_backward(BF16, FP32, 17) == CHECKPOINTS
    assert kept_for_backward(BF16, BF16, 4) == NOTHING
    assert kept_for_backward(FP32, BF16, 64) == DIFFERENCES
    assert kept_for_backward(BF16, E4M3, 4) == DIFFERENCES
    assert kept_for_backward(torch.bool, FP32, 4) == NOTHING
    assert [kept_rows(CHECKPOINTS, T) for T in (17, 32, 33, 64)] == [1, 1, 2, 3]
    assert kept_rows(DIFFERENCES, 5) == 5
    assert kept_rows(NOTHING, 5) == 0


def test_bytes() -> None:
    assert traffic(BF16, FP32, 16, last_membrane=False) == (4, 6, 2)
    assert traffic(BF16, BF16, 16, last_membrane=False) == (4, 6, 2)
    assert traffic(BF16, E4M3, 64, last_membrane=False) == (5, 5, 1)
    assert traffic(FP32, BF16, 64, last_membrane=False) == (10, 10, 2)
    assert traffic(FP32, FP32, 16, last_membrane=False) == (8, 12, 4)
    assert traffic(BF16, FP32, 64, last_membrane=False) == (4 + 12 / 64, 6 + 12 / 64, 2 + 12 / 64)
    assert traffic(BF16, FP32, 4) == (5, 6, 2)
    assert traffic(BF16, E4M3, 4, training=False, last_membrane=False) == (4, 0, 0)


def test_arithmetic_names() -> None:
    assert membrane() == (FP32, FP32, FP32)
    assert membrane(E4M3, "fp8", "bf16") == (E4M3, E4M3, BF16)
    for storage, forward in ((None, "fp8"), (BF16, "fp8"), (BF16, "int4")):
        with pytest.raises(ValueError, match=f"forward={forward!r}"):
            membrane(storage, forward)
    with pytest.raises(ValueError, match=r"storage=torch\.float64"):
        membrane(torch.float64)
    assert DTYPES[0] == FP32
