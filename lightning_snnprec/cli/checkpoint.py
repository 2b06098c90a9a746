"""Reading a checkpoint before a run starts, to refuse with a sentence what would fail with a traceback."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from lightning.pytorch import LightningModule, Trainer
from packaging.version import InvalidVersion, Version
from torch import Tensor

from lightning_snnprec.cli.divergence import nonfinite_weights, some_names
from lightning_snnprec.config.errors import UserError

_SHOWN = 4
_WANTED = "wanted is a file that Lightning saved, such as the checkpoints/last.ckpt of a run"
_VERSION = "pytorch-lightning_version"
_OF_A_RUN = ("optimizer_states", "lr_schedulers", "loops", "epoch", "global_step")
_RESTORING = "lightning.pytorch.trainer.connectors.checkpoint_connector"
_FOREIGN = (KeyError, IndexError, ValueError, TypeError, AttributeError, RuntimeError)


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
        raise UserError(_unreadable(path, error)) from error
    if not isinstance(content, dict) or not isinstance(content.get("state_dict"), Mapping):
        raise UserError(f"{path} is no Lightning checkpoint: it has no 'state_dict'; {_WANTED}")
    if not _is_version(content.get(_VERSION)):
        raise UserError(f"{path} is no Lightning checkpoint: it has no {_VERSION!r}; {_WANTED}")
    return content


def check_resumable(content: Mapping[str, Any], module: LightningModule, path: Path) -> None:
    """Refuses to train on from a checkpoint that holds weights alone, or weights that are not finite.

    Raises:
        UserError: saying what it lacks, or which weights hold NaN or Inf.
    """
    missing = [key for key in _OF_A_RUN if key not in content]
    if missing:
        raise UserError(
            f"{path} cannot be resumed: it has no {', '.join(missing)}, as if saved with its weights alone; it can "
            "still be validated, tested and used to predict"
        )
    told = nonfinite_note(content, module, path)
    if told is not None:
        raise UserError(f"{told}; resume from an earlier checkpoint, or train anew with a lower model.optimizer.lr")


def nonfinite_note(content: Mapping[str, Any], module: LightningModule, path: Path) -> str | None:
    """A sentence where a checkpoint's weights hold NaN or Inf: its run had diverged; None where all are finite."""
    found = nonfinite_weights(content["state_dict"], (name for name, _ in module.named_parameters()))
    return f"{path} is of a run that diverged: NaN or Inf in {some_names(found)}" if found else None


@contextmanager
def restoring(path: Path | None) -> Iterator[None]:
    """Names the checkpoint where Lightning, or this package under it, cannot put its content back.

    Raises:
        UserError: in place of the failure; failures outside of restoring are left as they are.
    """
    try:
        yield
    except _FOREIGN as error:
        if path is None or not _within_restoring(error.__traceback__):
            raise
        text = " ".join(str(error.args[0] if error.args else error).split())
        raise UserError(f"{path} does not fit this run, or is damaged: {type(error).__name__}: {text}") from error


def check_same_model(content: Mapping[str, Any], module: LightningModule, path: Path) -> None:
    """Refuses a checkpoint whose weights do not fit the module.

    Raises:
        UserError: naming the weights that are missing, not expected or of another shape.
    """
    saved, wanted = content["state_dict"], module.state_dict()
    differing = [
        f"{name} is {list(saved[name].shape)} there, {list(wanted[name].shape)} here"
        for name in wanted
        if isinstance(saved.get(name), Tensor) and saved[name].shape != wanted[name].shape
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


def _unreadable(path: Path, error: Exception) -> str:
    try:
        with path.open("rb") as file:
            start = file.read(2)
    except OSError as closed:
        return f"{path} cannot be read: {closed.strerror or closed}"
    if not start:
        return f"{path} is not a checkpoint: the file is empty"
    if start == b"PK" and not isinstance(error, pickle.UnpicklingError):
        return f"{path} is truncated or damaged; use another checkpoint of the run"
    reason = next(iter(str(error).splitlines()), type(error).__name__)
    return f"{path} is not a checkpoint, or is truncated or damaged: {reason}"


def _is_version(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(Version(value))
    except InvalidVersion:
        return False


def _within_restoring(trace: TracebackType | None) -> bool:
    while trace is not None:
        frame = trace.tb_frame
        if frame.f_globals.get("__name__") == _RESTORING and "dump" not in frame.f_code.co_name:
            return True
        trace = trace.tb_next
    return False


def _some(names: list[str]) -> list[str]:
    return names if len(names) <= _SHOWN else [*names[:_SHOWN], f"and {len(names) - _SHOWN} more"]
