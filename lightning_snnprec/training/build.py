"""From a recipe to what trains: Trainer, LightningModule and data module."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import hydra.utils
import torch
from hydra.errors import HydraException
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Callback, LightningDataModule, LightningModule, Trainer, seed_everything
from omegaconf import DictConfig, OmegaConf, open_dict

from lightning_snnprec.arguments import int_fault, number_fault
from lightning_snnprec.config.errors import UserError
from lightning_snnprec.config.schema import check_recipe
from lightning_snnprec.precision import ConversionPlan, PrecisionConfig, make_plan, probe, refusals
from lightning_snnprec.training.factory_trial import failed_trials
from lightning_snnprec.training.plugin import SNNPrecision

_Built = TypeVar("_Built")
_USERS_FAULTS = (ValueError, TypeError, MisconfigurationException, FileNotFoundError, ModuleNotFoundError)


@dataclass(frozen=True)
class Run:
    """A recipe, built and ready to run.

    Args:
        trainer: with the `SNNPrecision` of the recipe, its callbacks and its logger.
        module: the network with its losses, metrics and optimizers.
        data: the data module.
        precision: what the recipe asks for.
        plan: the decision on each module of the network.
        folder: the run's folder.
    """

    trainer: Trainer
    module: LightningModule
    data: LightningDataModule
    precision: PrecisionConfig
    plan: ConversionPlan
    folder: Path


def build_run(recipe: DictConfig, folder: Path, *, command: str = "fit") -> Run:
    """Seeds every generator, then builds data, module and Trainer in this order; writes nothing.

    Args:
        recipe: composed, see `compose_recipe`.
        folder: the run's folder; the recipe's `run_dir` becomes this.
        command: what the run is for: "fit", "validate", "test" or "predict"; only a fit has a logger.

    Raises:
        UserError: the recipe is faulty, or the machine cannot run it; all that was found in one go is told at once.
    """
    recipe = in_folder(recipe, folder)
    precision = check_recipe(recipe, command)
    if command != "fit":
        OmegaConf.update(recipe, "trainer.logger", False)
    seed(recipe)
    limit_threads(recipe)
    data = _build(recipe, "data", LightningDataModule)
    module = build_module(recipe)
    trainer = build_trainer(recipe, precision)
    plan = checked_plan(precision, module, trainer)
    return Run(trainer, module, data, precision, plan, folder)


def in_folder(recipe: DictConfig, folder: Path) -> DictConfig:
    """A copy of the recipe whose `run_dir` is `folder`, as an absolute path."""
    copy = recipe.copy()
    with open_dict(copy):
        copy.run_dir = str(folder.absolute())
    return copy


def seed(recipe: DictConfig) -> None:
    """Seeds Python, NumPy and torch, and the workers of loaders, unless the recipe's seed is null.

    Raises:
        UserError: the seed is not a whole number that all generators take.
    """
    value = recipe.get("seed")
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**32:
        raise UserError(f"seed={value!r} must be a whole number from 0 to {2**32 - 1}, or null")
    seed_everything(value, workers=True)


def limit_threads(recipe: DictConfig) -> None:
    """Sets torch's threads on the CPU, unless the recipe's `num_threads` is null.

    Raises:
        UserError: it is not a whole number of at least 1.
    """
    value = recipe.get("num_threads")
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(f"num_threads={value!r} must be a whole number of at least 1, or null for torch's own choice")
    torch.set_num_threads(value)


def build_module(recipe: DictConfig) -> LightningModule:
    """The LightningModule of the recipe, on the CPU, weights drawn from torch's generator.

    Raises:
        UserError: an argument that its class refuses.
    """
    module = _build(recipe, "model", LightningModule)
    for key, error in failed_trials(recipe.model):
        raise UserError(f"model.{key}: {error}") from error
    return module


def build_trainer(recipe: DictConfig, precision: PrecisionConfig) -> Trainer:
    """The Trainer of the recipe, with callbacks and `SNNPrecision`.

    Raises:
        UserError: an argument that Lightning refuses, or a device that is not there.
    """
    asked = recipe.trainer.get("precision")
    if asked is not None:
        raise UserError(
            f"trainer.precision={asked!r} and the recipe's precision group both set the precision; leave "
            f"trainer.precision out and choose precision=..., which is {precision.mode!r} now"
        )
    faults = [fault for fault in _number_faults(recipe.trainer) if fault]
    if faults:
        raise UserError("\n".join(faults))
    callbacks = [_build(recipe, f"callbacks.{name}", Callback) for name in recipe.get("callbacks") or {}]
    others = recipe.trainer.get("plugins")
    plugins = [SNNPrecision(precision), *(hydra.utils.instantiate(others, _convert_="all") if others else [])]
    return _build(recipe, "trainer", Trainer, callbacks=callbacks, plugins=plugins)


def _number_faults(trainer: DictConfig) -> Iterator[str | None]:
    """Numbers that Lightning takes as they are: it divides by 0 later on, or reads a negative one as "off"."""
    for key in ("accumulate_grad_batches", "check_val_every_n_epoch", "val_check_interval"):
        value = trainer.get(key)
        if isinstance(value, int):
            yield int_fault(f"trainer.{key}", value, 1)
    for key in ("gradient_clip_val", "log_every_n_steps"):
        value = trainer.get(key)
        if value is not None:
            yield number_fault(f"trainer.{key}", value, least=0.0)


def checked_plan(precision: PrecisionConfig, module: LightningModule, trainer: Trainer) -> ConversionPlan:
    """The plan of a precision on the run's device; refuses what that device or the model cannot have.

    Raises:
        UserError: with every reason.
    """
    facts = probe(trainer.strategy.root_device)
    reasons = refusals(precision, facts)
    if reasons:
        told = "\n".join(f"- {reason}" for reason in reasons)
        raise UserError(f"precision mode={precision.mode!r} cannot run here:\n{told}")
    try:
        plan = make_plan(module, precision, facts)
    except ValueError as error:
        raise UserError(f"precision: {error}") from error
    if precision.mode == "fp8" and not plan.converted:
        skipped = "\n".join(f"- {row.name} ({row.type}): {row.reason}" for row in plan.rows if row.decision == "skip")
        raise UserError(f"precision mode='fp8' would convert no layer of this model; use precision=bf16\n{skipped}")
    return plan


def _build(recipe: DictConfig, key: str, kind: type[_Built], **extra: Any) -> _Built:
    """Instantiates one part of a recipe, and says which key is at fault when its class refuses."""
    node = OmegaConf.select(recipe, key)
    if not isinstance(node, DictConfig) or "_target_" not in node:
        raise UserError(f"{key} must be a mapping with a '_target_', got {node!r}")
    try:
        built = hydra.utils.instantiate(node, _convert_="all", **extra)
    except HydraException as error:
        cause = error.__cause__
        while isinstance(cause, HydraException) and cause.__cause__ is not None:
            cause = cause.__cause__
        if cause is None:
            raise UserError(f"{key}: {error}") from error
        if isinstance(cause, _USERS_FAULTS):
            raise UserError(f"{_full_key(error) or key}: {cause}") from error
        raise
    if not isinstance(built, kind):
        raise UserError(f"{key}._target_={node['_target_']!r} makes a {type(built).__name__}, not a {kind.__name__}")
    return built


def _full_key(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.startswith("full_key: ")]
    return lines[-1].removeprefix("full_key: ") if lines else ""
