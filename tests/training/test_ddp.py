"""Two processes over gloo (field reports A24 and A25)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_snnprec.precision import PrecisionConfig, device_profile, make_plan
from tests.training.ddp_run import Root
from tests.training.lit import loader

ROOT = Path(__file__).parents[2]


def run(case: str, strategy: str) -> list[dict[str, Any]]:
    script = Path(__file__).with_name("ddp_run.py")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), case, strategy]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    found = [
        json.loads(line)
        for line in re.findall(r"RESULT (\{.*?\})$", done.stdout.replace("RESULT", "\nRESULT"), re.MULTILINE)
    ]
    return sorted(found, key=lambda result: int(result["rank"]))


@pytest.mark.parametrize("strategy", ["ddp", "snn_ddp"])
def test_conversion_is_the_same_as_on_one_device(strategy: str) -> None:
    """Lightning's DDP strategy drops what `convert_module` returns: conversion must be in place."""
    ranks = run("root", strategy)
    assert [result["rank"] for result in ranks] == [0, 1]
    alone = make_plan(Root(), PrecisionConfig("fp8", fp8_engine="emulated"), device_profile("cpu"))
    for result in ranks:
        assert result["converted"] == ["net"]
        assert result["digest"] == alone.digest
        assert result["optimizer_holds_them"]
        assert result["steps"] == 4
    assert ranks[0]["weights"] == ranks[1]["weights"]


def test_an_overflow_on_one_rank_skips_the_step_on_both() -> None:
    ranks = run("overflow", "snn_ddp")
    assert [result["skipped"] for result in ranks] == [1, 1]
    assert [result["scale"] for result in ranks] == [32768.0, 32768.0]
    assert ranks[0]["weights"] == ranks[1]["weights"]
    assert torch.tensor(ranks[0]["weights"]).isfinite()


def test_amax_is_the_maximum_over_ranks() -> None:
    """Each rank sees other samples; histories and scales are those of the larger amax."""
    ranks = run("emulated", "snn_ddp")
    assert ranks[0]["histories"] == ranks[1]["histories"]
    assert ranks[0]["weights"] == ranks[1]["weights"]
    x = loader(80).dataset.tensors[0]  # type: ignore[attr-defined]
    inputs = ranks[0]["histories"]["input"][-4:]
    # without shuffling, step s of rank r sees samples r, r + 2, ... of its 10: both ranks together 20 in a row
    expected = [part.abs().max().bfloat16().float().item() for part in x.split(20)]
    assert inputs == expected
