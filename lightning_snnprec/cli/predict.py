"""`snnprec predict`: writes what a checkpoint predicts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from omegaconf import DictConfig

from lightning_snnprec.cli.arguments import parse
from lightning_snnprec.cli.evaluate import evaluate
from lightning_snnprec.cli.fit_report import shown
from lightning_snnprec.cli.hydra_job import Job
from lightning_snnprec.cli.own_samples import OwnSamples
from lightning_snnprec.cli.terminal import say
from lightning_snnprec.config.errors import UserError
from lightning_snnprec.training.build import Run

_DEFAULT_NAME = "predictions.npz"


def run(arguments: Sequence[str]) -> int:
    """Predicts the test set, or one's own samples, and writes the outcome to an .npz file.

    Returns:
        Exit status 0.

    Raises:
        UserError: anything in the request, the recipe, the checkpoint or the samples that cannot be done.
    """
    evaluate(parse(arguments), _predict)
    return 0


def _predict(job: Job, made: Run, checkpoint: Path) -> None:
    output = _output(job.recipe, made.folder)
    if made.trainer.world_size > 1:
        raise UserError(
            f"snnprec predict runs on one device, but this recipe asks for {made.trainer.world_size}; add "
            "trainer.devices=1 trainer.strategy=snn"
        )
    data = made.data
    if job.recipe.get("input") is not None:
        data = OwnSamples(Path(job.recipe.input), made.data)
    batches = made.trainer.predict(made.module, datamodule=data, ckpt_path=checkpoint)
    arrays = _joined(batches)
    _write(arrays, output)
    say(
        f"predictions: {shown(output)} ("
        + ", ".join(f"{name} {list(array.shape)}" for name, array in arrays.items())
        + ")"
    )


def _output(recipe: DictConfig, folder: Path) -> Path:
    asked = recipe.get("output")
    output = folder / _DEFAULT_NAME if asked is None else Path(asked).expanduser().absolute()
    if output.suffix != ".npz":
        raise UserError(f"output={asked} must end in .npz, the format that is written")
    if output.is_dir() or not output.parent.is_dir():
        reason = "is a folder" if output.is_dir() else f"cannot be written: there is no folder {output.parent}"
        raise UserError(f"output={asked} {reason}")
    return output


def _joined(batches: Sequence[object] | None) -> dict[str, np.ndarray]:
    if not batches or not all(isinstance(batch, dict) for batch in batches):
        raise UserError("there is nothing to predict: the data gave no batch, or the model's predict_step no dict")
    first = batches[0]
    assert isinstance(first, dict)
    return {name: torch.cat([batch[name] for batch in batches]).cpu().numpy() for name in first}  # type: ignore[index]


def _write(arrays: dict[str, np.ndarray], output: Path) -> None:
    """Writes aside and renames, so that the file is whole or not there."""
    aside = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        with aside.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]
        aside.replace(output)
    except OSError as error:
        raise UserError(f"output={output} cannot be written: {error.strerror or error}") from error
    finally:
        aside.unlink(missing_ok=True)
