"""`snnprec plan`."""

from __future__ import annotations

from pathlib import Path

import torch

from lightning_snnprec.config.compose import compose_recipe
from lightning_snnprec.precision import PrecisionConfig, device_profile, make_plan
from lightning_snnprec.training.build import build_module
from tests.cli.conftest import Snnprec


def test_fp8_is_planned_for_a_device_that_is_not_here(snnprec: Snnprec, here: Path) -> None:
    outcome = snnprec("plan", "precision=fp8", "device=h200")
    assert outcome.status == 0
    plan = make_plan(build_module(compose_recipe()), PrecisionConfig("fp8"), device_profile("h200"))
    assert len(plan.converted) == 3
    assert plan.digest in outcome.out
    for row in plan.rows:
        if row.decision != "container":
            assert row.name in outcome.out
    assert outcome.out.count(" convert ") == 3 + plan.summary().count(" convert ")
    assert "NVIDIA H200" in outcome.row("device")
    assert list(here.iterdir()) == []


def test_what_a_device_would_refuse_is_listed(snnprec: Snnprec) -> None:
    outcome = snnprec("plan", "precision=mxfp8", "device=h200")
    assert outcome.status == 0
    told = outcome.out[outcome.out.index("NVIDIA H200 would refuse mode='fp8':") :]
    assert "fp8_recipe='mxfp8' needs compute capability 10.0" in told


def test_this_machine_can_run_bf16(snnprec: Snnprec) -> None:
    outcome = snnprec("plan")
    assert outcome.status == 0
    assert outcome.row("torch") == torch.__version__
    assert outcome.out.endswith("this machine can run mode='bf16'.\n")


def test_an_unknown_device_and_a_pattern_without_a_match_are_told(snnprec: Snnprec) -> None:
    outcome = snnprec("plan", "device=h2000")
    assert outcome.status == 2
    assert "device='h2000' is not a known profile; use one of cpu, a100" in outcome.complaint
    outcome = snnprec("plan", "precision=fp8", "precision.exclude=[hed]", "device=h200")
    assert outcome.status == 2
    assert "exclude pattern 'hed' matches no module; near names are 'net.head'" in outcome.complaint
