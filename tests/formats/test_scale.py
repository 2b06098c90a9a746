from __future__ import annotations

import io

import pytest
import torch

from lightning_snnprec.formats import (
    BLOCK_1X128,
    E4M3,
    MXFP8,
    NVFP4,
    NVFP4_2D,
    Scale,
    quantize_blocks,
    quantize_current,
)


def scales() -> list[Scale]:
    x = torch.randn(32, 128)
    blocks = [quantize_blocks(x, block) for block in (BLOCK_1X128, MXFP8, NVFP4, NVFP4_2D)]
    tensor_scales = [found.tensor_scale for found in blocks if found.tensor_scale is not None]
    assert len(tensor_scales) == 2
    return [quantize_current(x, E4M3).scale, *(found.scale for found in blocks), *tensor_scales]


def test_a_scale_says_what_it_is() -> None:
    per_tensor, per_block, mx, nv, nv_2d, nv_tensor, _ = scales()
    found = [
        (s.axis, s.group_size, s.update, s.format, s.meaning, s.stored_as, s.version) for s in (per_tensor, per_block)
    ]
    assert found == [
        (None, None, "current", "E4M3", "encode", "FP32", 1),
        (-1, (1, 128), "power_of_two", "E4M3", "decode", "FP32", 1),
    ]
    assert [(s.group_size, s.update, s.format, s.stored_as) for s in (mx, nv, nv_2d, nv_tensor)] == [
        ((1, 32), "e8m0_up", "E4M3", "E8M0"),
        ((1, 16), "nvfp4", "E2M1", "E4M3"),
        ((16, 16), "nvfp4", "E2M1", "E4M3"),
        (None, "nvfp4", "E2M1", "FP32"),
    ]


def test_a_scale_survives_a_file_of_plain_values() -> None:
    for scale in scales():
        file = io.BytesIO()
        torch.save(scale.state(), file)
        file.seek(0)
        again = Scale.from_state(torch.load(file, weights_only=True))
        assert torch.equal(again.values, scale.values)
        assert {**again.state(), "values": None} == {**scale.state(), "values": None}


def test_a_state_is_a_copy() -> None:
    scale = quantize_current(torch.randn(5), E4M3).scale
    state = scale.state()
    before = scale.values.clone()
    state["values"].zero_()
    assert torch.equal(scale.values, before)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "reads scale records of version 1; found 2"),
        ({"format": "E4M4"}, "format='E4M4'.*Did you mean 'E4M3'"),
        ({"meaning": "both"}, "meaning='both'"),
        ({"values": torch.ones(2, dtype=torch.float64)}, "needs an FP32 tensor; found a tensor of torch.float64"),
        ({"colour": 1}, r"unknown entries \['colour'\]"),
    ],
)
def test_a_bad_state_is_refused(change: dict[str, object], message: str) -> None:
    state = quantize_current(torch.randn(5), E4M3).scale.state()
    with pytest.raises(ValueError, match=message):
        Scale.from_state({**state, **change})
    del state["axis"]
    with pytest.raises(ValueError, match="'axis'"):
        Scale.from_state(state)
