"""`prepare_model_for_precision`: device, capability check, plan, conversion, in that order, before any optimizer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from lightning_snnprec.precision.artifacts import PrecisionArtifacts
from lightning_snnprec.precision.capability import probe, refusals
from lightning_snnprec.precision.config import PrecisionConfig
from lightning_snnprec.precision.convert import convert, converted_layers, engine_of, to_plain
from lightning_snnprec.precision.engines.protocol import Engine
from lightning_snnprec.precision.engines.registry import engine_class
from lightning_snnprec.precision.inputs import add_input_casts
from lightning_snnprec.precision.neuron_policy import apply_neuron_policy, neuron_policy
from lightning_snnprec.precision.plan import ConversionPlan, make_plan


def prepare_model_for_precision(
    model: nn.Module,
    device: torch.device | str,
    config: PrecisionConfig | str | Mapping[str, Any] | None = None,
) -> PrecisionArtifacts:
    """Moves a model to its device and makes it ready for a precision, in place; make the optimizer afterwards.

    Preparing a model again under the same precision changes nothing and keeps the state of its FP8 engine; another
    precision takes the former one off first.

    Args:
        model: any module, the root may itself be a layer that is converted. Not one wrapped for DDP.
        device: where the model will run.
        config: see `PrecisionConfig.from_any`.

    Returns:
        The context, loss scaling and reports of the training loop; `.model` is the model that was given.

    Raises:
        ValueError: a bad configuration, or a pattern of it that matches no module.
        RuntimeError: the device cannot run it, with all reasons; FP8 that would convert no layer; a wrapped model;
            parameters on the meta device. The model is then as it was.
    """
    config = PrecisionConfig.from_any(config)
    _check_model(model)
    target = torch.device(device)
    facts = probe(target)
    reasons = refusals(config, facts)
    if reasons:
        raise RuntimeError(
            f"mode={config.mode!r} cannot run here:\n" + "\n".join(f"  - {reason}" for reason in reasons)
        )
    plan = make_plan(model, config, facts)
    if config.mode == "fp8" and not plan.converted:
        raise RuntimeError(_nothing_to_convert(plan))
    model.to(target)
    engine = _convert_once(model, config, plan, target)
    add_input_casts(model)
    nodes = apply_neuron_policy(model, neuron_policy(config))
    return PrecisionArtifacts(model, config, plan, facts, target, engine, nodes)


def _convert_once(
    model: nn.Module, config: PrecisionConfig, plan: ConversionPlan, device: torch.device
) -> Engine | None:
    engine = engine_of(model)
    same = engine is not None and engine.config == config and set(converted_layers(model)) == set(plan.converted)
    if engine is not None and same:
        engine.to(device)
        return engine
    if engine is not None:
        to_plain(model)
    if plan.engine is None or plan.recipe is None:
        return None
    made = engine_class(plan.engine)(config, plan.recipe, device)
    convert(model, plan, made)
    return made


def _check_model(model: nn.Module) -> None:
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    if isinstance(model, nn.parallel.DistributedDataParallel | nn.DataParallel):
        raise RuntimeError(
            f"the model is already wrapped in {type(model).__name__}; prepare the plain model first, then wrap it"
        )
    tensors = [*model.named_parameters(), *model.named_buffers()]
    meta = [name for name, tensor in tensors if tensor.is_meta]
    if meta:
        raise RuntimeError(
            f"parameters or buffers on the meta device have no values to prepare: {', '.join(meta[:3])}; "
            "materialise the model first"
        )


def _nothing_to_convert(plan: ConversionPlan) -> str:
    skipped = [f"  - {row.name or '(root)'} ({row.type}): {row.reason}" for row in plan.rows if row.decision == "skip"]
    why = "\n".join(skipped) if skipped else "  - the model has no layer with a GEMM"
    return (
        f"mode='fp8' would convert no layer of this model, so nothing would run in FP8; use mode='bf16'. Layers:\n{why}"
    )
