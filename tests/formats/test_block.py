from __future__ import annotations

import math
from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import Tensor

from lightning_snnprec.formats import (
    BLOCK_1X128,
    BLOCK_128X128,
    E2M1,
    E4M3,
    E5M2,
    E8M0,
    FP16,
    MXFP8,
    NVFP4,
    NVFP4_2D,
    TF32,
    BlockSpec,
    effective_bits,
    quantize_blocks,
    random_bits,
    round_to,
)
from tests.formats import block_oracle as oracle
from tests.formats.points import assert_same_bits

BLOCKS = pytest.mark.parametrize("block", [BLOCK_1X128, BLOCK_128X128, MXFP8, NVFP4, NVFP4_2D], ids=lambda b: b.name)


def outliers(x: Tensor) -> Tensor:
    x[torch.rand_like(x) < 0.01] *= 1e4
    return x


def some_zero_blocks(x: Tensor) -> Tensor:
    x[:, :128] = 0.0
    x[:128] *= -1.0
    x[:, 256:272] = -0.0
    return x


CONTENTS = {
    "random": lambda x: x,
    "outliers": outliers,
    "channels of all sizes": lambda x: x * torch.exp2(torch.randint(-30, 30, (x.shape[1],)).float()),
    "zero blocks": some_zero_blocks,
    "zeros": torch.zeros_like,
    "tiny": lambda x: x * 1e-30,
    "subnormal": lambda x: x * 1e-40,
    "huge": lambda x: x.clamp(-3, 3) * 1e38,
    "powers of two": lambda x: torch.exp2(torch.randint(-20, 20, x.shape).float()),
    "multiples of the largest": lambda x: 448.0 * torch.exp2(torch.randint(-9, 9, x.shape).float()),
    "bfloat16": lambda x: x.bfloat16().float(),
}


def spread(scale: Tensor, block: BlockSpec) -> Tensor:
    """One value per element."""
    return scale.repeat_interleave(block.cols, -1).repeat_interleave(256 // scale.shape[0], 0)


def expected(x: Tensor, block: BlockSpec) -> oracle.Blocks:
    array = x.numpy()
    if block.rule == "nvfp4":
        return oracle.nvfp4_blocks(array, block.rows)
    if block.rule == "power_of_two":
        return oracle.fp8_blocks(array, block.rows, block.cols)
    kinds = {"E4M3": ml_dtypes.float8_e4m3fn, "E5M2": ml_dtypes.float8_e5m2, "E2M1": ml_dtypes.float4_e2m1fn}
    emax = block.element.max_exponent if block.rule == "e8m0_floor" else None
    return oracle.mx_blocks(array, block.cols, kinds[block.element.name], block.element.max, emax)


@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize(
    "block",
    [
        BLOCK_1X128,
        BLOCK_128X128,
        MXFP8,
        NVFP4,
        NVFP4_2D,
        replace(MXFP8, name="OCP floor", rule="e8m0_floor"),
        replace(MXFP8, name="E5M2", element=E5M2),
        replace(MXFP8, name="MXFP4", element=E2M1),
        replace(MXFP8, name="MXFP4 floor", element=E2M1, rule="e8m0_floor"),
    ],
    ids=lambda block: block.name,
)
def test_blocks_equal_the_oracle_bit_for_bit(block: BlockSpec, content: str) -> None:
    x = CONTENTS[content](torch.randn(256, 384))
    wanted, found = expected(x, block), quantize_blocks(x, block)
    assert_same_bits(found.payload, torch.from_numpy(wanted.payload), x)
    assert_same_bits(spread(found.scale.values, block), torch.from_numpy(wanted.scale), x)
    assert_same_bits(found.restored, torch.from_numpy(wanted.restored), x)
    assert found.scale.values.isfinite().all()
    if wanted.tensor_scale is None:
        assert found.tensor_scale is None
    else:
        assert found.tensor_scale is not None
        assert found.tensor_scale.values.item() == wanted.tensor_scale


@BLOCKS
def test_payload_and_scales_lie_on_their_grids(block: BlockSpec) -> None:
    found = quantize_blocks(outliers(torch.randn(256, 384)), block)
    assert_same_bits(round_to(found.payload, block.element), found.payload)
    assert_same_bits(round_to(found.scale.values, block.scale_format), found.scale.values)


@BLOCKS
def test_a_block_of_zeros_is_exact(block: BlockSpec) -> None:
    x = torch.randn(256, 256)
    x[:128, :128] = 0.0
    found = quantize_blocks(x, block)
    assert_same_bits(found.restored[:128, :128], torch.zeros(128, 128))
    assert found.scale.values.isfinite().all()
    assert not found.saturated.any()


@BLOCKS
def test_blocks_do_not_see_each_other(block: BlockSpec) -> None:
    x = torch.randn(256, 256)
    x[0, 0] = 30.0  # holds the tensor's amax, and so NVFP4's tensor scale
    changed = x.clone()
    changed[-1, -1] = 25.0
    same = torch.ones_like(x, dtype=torch.bool)
    same[-block.rows :, -block.cols :] = False
    first, second = quantize_blocks(x, block), quantize_blocks(changed, block)
    assert torch.equal(first.restored[same], second.restored[same])
    assert not torch.equal(first.restored[~same], second.restored[~same])


@BLOCKS
def test_leading_dimensions_are_batches(block: BlockSpec) -> None:
    x = torch.randn(2, 3, 128, 128)
    x[0, 0, 0, 0] = 30.0
    found = quantize_blocks(x, block)
    alone = quantize_blocks(x[0, 0], block)
    assert_same_bits(found.restored[0, 0], alone.restored)
    assert torch.equal(found.scale.values[0, 0], alone.scale.values)
    lines = 128 // block.rows
    assert found.scale.values.shape == (2, 3, lines, 128 // block.cols)


def test_blocks_of_one_row_take_vectors_and_weight_blocks_commute_with_transposition() -> None:
    x = torch.randn(256)
    assert_same_bits(quantize_blocks(x, MXFP8).restored, quantize_blocks(x[None], MXFP8).restored[0])
    weight = torch.randn(256, 384)
    for block in (BLOCK_128X128, NVFP4_2D):
        assert_same_bits(quantize_blocks(weight.t(), block).restored, quantize_blocks(weight, block).restored.t())


@BLOCKS
def test_half_inputs_strides_and_empty_batches(block: BlockSpec) -> None:
    x = torch.randn(128, 256).bfloat16()
    assert_same_bits(quantize_blocks(x, block).restored, quantize_blocks(x.float(), block).restored)
    strided = torch.randn(384, 256).t()
    assert_same_bits(quantize_blocks(strided, block).restored, quantize_blocks(strided.contiguous(), block).restored)
    assert quantize_blocks(torch.empty(0, 128, 128), block).payload.shape == (0, 128, 128)


@pytest.mark.parametrize(
    ("block", "shape", "message"),
    [
        (MXFP8, (4, 33), r"MXFP8 needs the last dimension in multiples of 32; x is \(4, 33\)"),
        (BLOCK_1X128, (64,), "last dimension in multiples of 128"),
        (NVFP4, (), r"last dimension in multiples of 16; x is \(\)"),
        (NVFP4_2D, (16,), r"last two dimensions in multiples of 16 x 16; x is \(16,\)"),
        (NVFP4_2D, (24, 16), "16 x 16"),
        (BLOCK_128X128, (128, 64), "128 x 128"),
    ],
)
def test_a_size_that_blocks_do_not_tile_is_refused(block: BlockSpec, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quantize_blocks(torch.zeros(shape), block)


@BLOCKS
@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_non_finite_blocks_are_refused_unless_asked_otherwise(block: BlockSpec, bad: float) -> None:
    x = torch.randn(128, 256)
    x[0, 0] = bad
    with pytest.raises(ValueError, match=f"{block.name}: 1 of .* not finite"):
        quantize_blocks(x, block)
    found = quantize_blocks(x, block, validate=False)
    assert found.scale.values.isfinite().all()
    assert found.restored[-1].isfinite().all()
    if math.isinf(bad):
        assert found.saturated[0, 0]
        assert found.payload[0, 0] == math.copysign(block.element.max, bad)
    elif block.element.nan != "none":
        assert found.payload[0, 0].isnan()


def test_ocp_floor_saturates_where_rounding_up_does_not() -> None:
    x = torch.full((1, 32), 1.0)
    x[0, 0] = 500.0
    floor, up = quantize_blocks(x, replace(MXFP8, rule="e8m0_floor")), quantize_blocks(x, MXFP8)
    assert floor.scale.values.item() == 1.0
    assert up.scale.values.item() == 2.0
    assert floor.saturated.nonzero().tolist() == [[0, 0]]
    assert not up.saturated.any()
    assert (floor.restored[0, 0], up.restored[0, 0]) == (448.0, 512.0)


@BLOCKS
def test_nothing_saturates_under_the_rules_of_the_hardware(block: BlockSpec) -> None:
    x = torch.randn(256, 384) * torch.exp2(torch.randint(-6, 6, (256, 384)).float())
    assert not quantize_blocks(x, block).saturated.any()


def test_nvfp4_marks_blocks_whose_scale_underflows() -> None:
    x = torch.full((1, 32), 1e-9)
    x[0, :16] = 1.0
    found = quantize_blocks(x, NVFP4)
    assert found.scale.values.tolist() == [[448.0, 0.0]]
    assert found.restored[0, 16:].tolist() == [0.0] * 16
    assert found.saturated[0, 16:].all()
    assert not found.saturated[0, :16].any()


def test_fp32_scales_use_the_whole_range() -> None:
    x = torch.randn(4, 256)
    found = quantize_blocks(x, replace(BLOCK_1X128, rule="fp32"))
    tops = found.payload.reshape(4, 2, 128).abs().amax(-1)
    assert torch.equal(tops, torch.full((4, 2), 448.0))


@pytest.mark.parametrize("mode", ["toward_zero", "stochastic"])
@BLOCKS
def test_other_roundings_take_the_same_scales(block: BlockSpec, mode: str) -> None:
    x = torch.randn(256, 256)
    bits = random_bits(x) if mode == "stochastic" else None
    nearest, other = quantize_blocks(x, block), quantize_blocks(x, block, mode, bits)  # type: ignore[arg-type]
    assert torch.equal(nearest.scale.values, other.scale.values)
    assert not torch.equal(nearest.payload, other.payload)
    if mode == "toward_zero":
        # NVFP4's E4M3 scale is rounded too, so only the payload is sure to shrink.
        assert (other.payload.abs() <= nearest.payload.abs()).all()


def test_effective_bits() -> None:
    found = [effective_bits(block) for block in (MXFP8, NVFP4, NVFP4_2D, BLOCK_1X128, BLOCK_128X128)]
    assert found == [8.25, 4.5, 4 + 8 / 256, 8.25, 8 + 32 / 128**2]
    assert [effective_bits(spec) for spec in (E4M3, E2M1, E8M0, FP16, TF32)] == [8, 4, 8, 16, 19]
    assert effective_bits(NVFP4, numel=64) == 5.0
    assert effective_bits(MXFP8, numel=64) == 8.25
    assert effective_bits(E4M3, numel=32) == 9.0


def test_bad_block_is_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"(?s)2 arguments.*cols=0.*rule='up'"):
        BlockSpec("mine", 1, 0, E4M3, "up")  # type: ignore[arg-type]


def test_oracle_casts_are_those_of_the_package() -> None:
    x = torch.randn(1001) * 3
    found = oracle.cast(x.numpy(), ml_dtypes.float4_e2m1fn, 6)
    assert np.array_equal(found, round_to(x, E2M1).numpy())
