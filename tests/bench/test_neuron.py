from __future__ import annotations

from typing import Any

import pytest
import torch

from lightning_snnprec.bench import main, neuron


def row(who: str, storage: str, total_us: float, **more: Any) -> dict[str, Any]:
    size = {"time_steps": 16, "log2_elements": 24}
    half = {"forward_us": 0.4 * total_us, "backward_us": 0.6 * total_us}
    return {"who": who, "storage": storage, **size, **half, "total_us": total_us, **more}


def ours(storage: str, total_us: float, share: float = 0.9) -> dict[str, Any]:
    shares = {"forward_share": share, "backward_share": share, "share": share, "bytes": 10.0, "kept_bytes": 2.0}
    return row("lightning_snnprec", storage, total_us, **shares)


@pytest.mark.skipif(torch.cuda.is_available(), reason="says so where there is no GPU")
def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["neuron"]) == 1
    assert "CUDA device" in capsys.readouterr().out


def test_limits() -> None:
    good = [ours("default", 100.0), ours("bf16", 100.0)]
    peers = [
        row("spikingjelly", "fp32", 201.0),
        row("spikingjelly", "default", 101.0),
        row("spikingjelly", "bf16", 101.0),
    ]
    host = {"default": {"lightning_snnprec": 49.0, "spikingjelly": 100.0}}
    assert neuron.missed([*good, *peers], host) == []
    assert neuron.missed(good, {"default": {"lightning_snnprec": 49.0}}) == []

    slow = [ours("default", 102.0, share=0.8), ours("bf16", 102.0)]
    found = neuron.missed([*slow, *peers], {"default": {"lightning_snnprec": 51.0, "spikingjelly": 100.0}})
    assert [sentence.split(":")[-1] for sentence in found] == [
        " 0.80 of copy bandwidth, under 0.85",
        " 0.99 times as fast as its default",
        " 1.97 times as fast as its fp32",
        " 0.99 times as fast as its bf16",
        "host time with default storage is over 0.5 of SpikingJelly's",
    ]


def test_a_row_as_a_line() -> None:
    assert "40.0 us forward" in neuron.told(ours("default", 100.0))
    assert neuron.told({**row("spikingjelly", "fp16", 1.0), "failed": "out of memory"}).endswith(
        "failed: out of memory"
    )
