"""What an engine calls every step never reads a value on the host: meta tensors, which have none, pass through."""

from __future__ import annotations

import pytest
import torch

from lightning_snnprec.formats import (
    BLOCK_128X128,
    E4M3,
    FORMATS,
    MXFP8,
    NVFP4,
    AmaxHistory,
    BlockSpec,
    FloatSpec,
    amax_of,
    quantize_blocks,
    quantize_current,
    quantize_tensor,
    random_hadamard,
    round_to,
)


def meta(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device="meta")


def test_history() -> None:
    history = AmaxHistory(16, device="meta")
    history.record(amax_of(meta(3, 5)))
    history.update()
    found = quantize_tensor(meta(3, 5), E4M3, history.scale, validate=False)
    assert (found.payload.shape, found.saturated.dtype, found.restored.device.type) == ((3, 5), torch.bool, "meta")


@pytest.mark.parametrize("mode", ["nearest", "toward_zero", "stochastic"])
@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("spec", FORMATS.values(), ids=FORMATS)
def test_rounding(spec: FloatSpec, mode: str, saturate: bool) -> None:
    bits = torch.empty(3, 5, dtype=torch.int32, device="meta") if mode == "stochastic" else None
    assert round_to(meta(3, 5), spec, mode, bits, saturate).shape == (3, 5)  # type: ignore[arg-type]


@pytest.mark.parametrize("block", [BLOCK_128X128, MXFP8, NVFP4], ids=lambda block: block.name)
def test_blocks(block: BlockSpec) -> None:
    assert quantize_blocks(meta(128, 256), block, validate=False).restored.shape == (128, 256)
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        quantize_blocks(meta(128, 256), block)


def test_current_scaling_and_hadamard_transform() -> None:
    assert quantize_current(meta(3, 5), E4M3, validate=False).restored.shape == (3, 5)
    assert random_hadamard(meta(3, 16), meta(16), validate=False).shape == (3, 16)
