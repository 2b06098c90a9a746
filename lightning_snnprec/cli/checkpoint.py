"""Reading a checkpoint before a run starts, to refuse with a sentence what would fail with a traceback."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer

from lightning_snnprec.config.errors import UserError

_SHOWN = 4


def read_checkpoint(path: Path) -> dict[str, Any]:
    """The content of a Lightning checkpoint, on the CPU, read without unpickling code.

    Raises:
        UserError: the file cannot be read, or is no Lightning checkpoint.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        raise UserError(f"there is no checkpoint at {path}: no such file") from error
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, pickle.UnpicklingError, zipfile.BadZipFile) as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UserError(f"{path} is not a checkpoint, or is cut off: torch.load says {reason}") from error
    if not isinstance(content, dict) or not isinstance(content.get("state_dict"), Mapping):
        raise UserError(f"{path} is not a Lightning checkpoint: it has no 'state_dict'")
    return content


def check_same_model(content: Mapping[str, Any], module: LightningModule, path: Path) -> None:
    """Refuses a checkpoint whose weights do not fit the module.

    Raises:
        UserError: naming the weights that are missing, not expected or of another shape.
    """
    saved, wanted = content["state_dict"], module.state_dict()
    differing = [
        f"{name} is {list(saved[name].shape)} there, {list(wanted[name].shape)} here"
        for name in wanted
        if name in saved and hasattr(wanted[name], "shape") and saved[name].shape != wanted[name].shape
    ]
    faults = [f"- {text}" for text in _some(differing)]
    faults += [f"- missing there: {', '.join(_some([name for name in wanted if name not in saved]))}"]
    faults += [f"- not in this model: {', '.join(_some([name for name in saved if name not in wanted]))}"]
    told = [fault for fault in faults if not fault.endswith(": ")]
    if told:
        raise UserError(
            f"{path} is a checkpoint of another model than the recipe's; choose the recipe that it was trained with\n"
            + "\n".join(told)
        )


def check_something_left(content: Mapping[str, Any], trainer: Trainer, path: Path) -> None:
    """Refuses to resume a run that has trained as long as its recipe says.

    Raises:
        UserError: saying which key to raise.
    """
    epochs = (
        content.get("loops", {}).get("fit_loop", {}).get("epoch_progress", {}).get("current", {}).get("processed", 0)
    )
    steps = content.get("global_step", 0)
    if trainer.max_epochs is not None and 0 <= trainer.max_epochs <= epochs:
        limit, done = "trainer.max_epochs", epochs
    elif 0 <= trainer.max_steps <= steps:
        limit, done = "trainer.max_steps", steps
    else:
        return
    raise UserError(
        f"{path} has trained {done} {limit.rpartition('_')[2]}, as many as {limit} allows; to train on, add "
        f"{limit}={2 * max(done, 1)}"
    )


def _some(names: list[str]) -> list[str]:
    return names if len(names) <= _SHOWN else [*names[:_SHOWN], f"and {len(names) - _SHOWN} more"]
