"""`snnprec doctor`."""

from __future__ import annotations

import importlib.util

import hydra
import torch

from lightning_snnprec.config.location import group_options, recipes_dir
from lightning_snnprec.precision import PrecisionConfig, probe, refusals
from tests.cli.conftest import Snnprec


def test_versions_verdicts_and_remedies(snnprec: Snnprec) -> None:
    outcome = snnprec("doctor")
    assert outcome.status == 0
    assert outcome.row("  torch") == torch.__version__
    assert outcome.row("  hydra-core") == hydra.__version__
    assert outcome.row("  recipes") == str(recipes_dir())
    for option in group_options("precision"):
        assert outcome.row(f"  precision={option}") in ("yes", "no")
    for option in ("bf16", "fp16", "fp32"):
        assert outcome.row(f"  precision={option}") == "yes"
    for reason in refusals(PrecisionConfig("fp8"), probe("cpu")):
        assert reason in outcome.out
    if importlib.util.find_spec("transformer_engine") is None:
        assert "pip install 'lightning-snnprec[fp8]'" in outcome.row("  transformer_engine")


def test_it_takes_no_arguments(snnprec: Snnprec) -> None:
    outcome = snnprec("doctor", "precision=fp8")
    assert (outcome.status, outcome.complaint) == (2, "snnprec: snnprec doctor takes no arguments, got precision=fp8")
