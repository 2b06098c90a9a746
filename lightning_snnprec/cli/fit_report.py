"""What `snnprec fit` prints at its end: accuracy, firing rates, the run's folder, and how to resume it."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from lightning.pytorch.callbacks import ModelCheckpoint
from omegaconf import DictConfig

from lightning_snnprec.cli.terminal import say, show_rows
from lightning_snnprec.config.stored import CHECKPOINT_FOLDER, LAST
from lightning_snnprec.training.build import Run

_RATE = "val_firing_rate"


def report(made: Run, recipe: DictConfig, seconds: float, *, trained: bool, diverged: bool) -> None:
    """Prints the outcome of a fit that has come to its end.

    Args:
        made: the run.
        recipe: its recipe.
        seconds: how long it took.
        trained: whether there was any batch to train on.
        diverged: whether loss or weights are not finite; then no command to train on is given.
    """
    done = f"{made.trainer.global_step} steps, {made.trainer.current_epoch} epochs; {seconds:.1f} s"
    rows = [("trained", done if trained else f"nothing: {_why_nothing(made)}")]
    rows += [("precision", _precision(made))]
    rows += _accuracy(made)
    rows += _firing_rates(made)
    rows += [("run", shown(made.folder))]
    if not diverged and (made.folder / CHECKPOINT_FOLDER / LAST).exists():
        rows += [("train on", resume_command(made, recipe))]
    say()
    show_rows(rows)


def report_interruption(made: Run) -> None:
    """Prints where a run that Ctrl-C or SIGTERM has ended can be taken up again."""
    if (made.folder / CHECKPOINT_FOLDER / LAST).exists():
        say(f"interrupted; to go on from the last checkpoint: snnprec fit --resume {shlex.quote(shown(made.folder))}")
    else:
        say(f"interrupted before the first checkpoint; the run's folder is {shown(made.folder)}")


def resume_command(made: Run, recipe: DictConfig) -> str:
    """The command that continues the run beyond what its recipe asked for."""
    words = ["snnprec", "fit", "--resume", shown(made.folder)]
    trainer = made.trainer
    if trainer.max_steps > 0 and trainer.global_step >= trainer.max_steps:
        words.append(f"trainer.max_steps={2 * trainer.max_steps}")
    elif trainer.max_epochs is not None and 0 < trainer.max_epochs <= trainer.current_epoch:
        words.append(f"trainer.max_epochs={2 * trainer.max_epochs}")
    if recipe.get("allow_any_target"):
        words.append("allow_any_target=true")
    return shlex.join(words)


def shown(path: Path) -> str:
    """A path as short as it can be typed: relative to the working directory when below it."""
    return os.path.relpath(path) if path.is_relative_to(Path.cwd()) else str(path)


def _precision(made: Run) -> str:
    plugin = made.trainer.precision_plugin
    skipped = getattr(plugin, "skipped_steps", 0)
    return made.precision.mode + (f", {skipped} steps skipped for Inf or NaN gradients" if skipped else "")


def _why_nothing(made: Run) -> str:
    trainer = made.trainer
    limits = (
        ("limit_train_batches", trainer.limit_train_batches),
        ("max_epochs", trainer.max_epochs),
        ("max_steps", trainer.max_steps),
    )
    keys = [f"trainer.{name}={value}" for name, value in limits if value == 0]
    return f"{' and '.join(keys)} leaves no batch to train on" if keys else "there was no batch to train on"


def _accuracy(made: Run) -> list[tuple[str, str]]:
    value = made.trainer.callback_metrics.get("val_acc")
    if value is None:
        return [("validation accuracy", "not measured: the run had no validation")]
    text = f"{100 * float(value):.2f} %"
    best = next((c for c in made.trainer.checkpoint_callbacks if getattr(c, "monitor", None) == "val_acc"), None)
    if isinstance(best, ModelCheckpoint) and best.best_model_score is not None:
        text += f" (best {100 * float(best.best_model_score):.2f} %, {shown(Path(best.best_model_path))})"
    return [("validation accuracy", text)]


def _firing_rates(made: Run) -> list[tuple[str, str]]:
    metrics = made.trainer.callback_metrics
    overall = metrics.get(_RATE)
    if overall is None:
        return []
    layers = [
        f"{name.removeprefix(_RATE + '/')} {float(rate):.3f}"
        for name, rate in metrics.items()
        if name.startswith(f"{_RATE}/")
    ]
    lines = [f"{float(overall):.3f} spikes per neuron and time step, in validation", *layers]
    return [("firing rate", "\n".join(lines))]
