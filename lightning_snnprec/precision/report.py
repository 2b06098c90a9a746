"""`describe()`: a prepared model's precision as plain dictionaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from torch import nn

from lightning_snnprec.precision.capability import Facts, refusals
from lightning_snnprec.precision.config import PrecisionConfig
from lightning_snnprec.precision.engines.traits import TRAITS
from lightning_snnprec.precision.neuron_policy import is_foreign_neuron
from lightning_snnprec.precision.plan import ConversionPlan


def describe(
    config: PrecisionConfig, plan: ConversionPlan, facts: Facts, model: nn.Module, neurons: Sequence[str]
) -> dict[str, Any]:
    """What `PrecisionArtifacts.describe` returns: strings, numbers, lists and dicts only."""
    return {
        "config": config.to_dict(),
        "policy": _policy(config, plan),
        "capability_report": {"facts": dict(facts.lines()), "refusals": list(refusals(config, facts))},
        "conversion_report": _conversion(config, plan),
        "neurons": _neurons(config, model, neurons),
    }


def _policy(config: PrecisionConfig, plan: ConversionPlan) -> dict[str, Any]:
    return {
        "mode": config.mode,
        "autocast_dtype": config.autocast_dtype,
        "loss_scale": asdict(config.loss_scale) if config.uses_loss_scale else None,
        "engine": plan.engine,
        "recipe": plan.recipe,
        "simulation": plan.engine is not None and TRAITS[plan.engine].simulated,
    }


def _conversion(config: PrecisionConfig, plan: ConversionPlan) -> dict[str, Any]:
    gemms = {"autocast": config.autocast_dtype, "skip": config.autocast_dtype, "convert": _converted_gemm(plan)}
    return {
        "digest": plan.digest,
        "converted": list(plan.converted),
        "skipped": {row.name: row.reason for row in plan.rows if row.decision == "skip"},
        "gemms": {row.name: gemms[row.decision] for row in plan.rows if row.decision in gemms},
        "rows": [asdict(row) for row in plan.rows],
    }


def _converted_gemm(plan: ConversionPlan) -> str:
    if plan.engine is not None and TRAITS[plan.engine].simulated:
        return f"fp32, on operands rounded as {plan.recipe} says: a simulation, not an FP8 GEMM"
    return f"FP8 operands as {plan.recipe} says, fp32 sums"


def _neurons(config: PrecisionConfig, model: nn.Module, neurons: Sequence[str]) -> dict[str, Any]:
    return {
        "storage": config.neuron_storage or "fp32",
        "forward": config.neuron_fwd,
        "backward": config.neuron_bwd,
        "implementation": "plain torch, on every device",
        "modules": list(neurons),
        "left_alone": [name for name, module in model.named_modules() if is_foreign_neuron(module)],
    }
