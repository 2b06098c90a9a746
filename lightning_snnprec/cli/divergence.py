"""Training that diverged: since which step the loss has not been finite, and which weights hold NaN or Inf."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor
from typing_extensions import override

from lightning_snnprec.training.build import Run

_LOSSES = ("train_loss", "val_loss")
_SHOWN = 3


class LossWatch(pl.Callback):
    """Remembers the last step whose loss was finite, on the device, so that no step waits for the answer.

    `trained` says whether any batch has been trained on.
    """

    def __init__(self) -> None:
        self.trained = False
        self._step = 0
        self._last_finite: Tensor | None = None
        self._last_loss: Tensor | None = None

    @override
    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._step = trainer.global_step + 1
        if self._last_finite is None:
            self._last_finite = torch.tensor(trainer.global_step, device=pl_module.device)

    @override
    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self.trained = True
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if isinstance(loss, Tensor) and self._last_finite is not None:
            self._last_loss = loss.detach()
            self._last_finite = torch.where(torch.isfinite(self._last_loss).all(), self._step, self._last_finite)

    def bad_since(self) -> int | None:
        """The first step of those at the end whose loss was not finite; None where the last loss was finite."""
        if self._last_loss is None or self._last_finite is None or bool(torch.isfinite(self._last_loss).all()):
            return None
        return int(self._last_finite) + 1


def divergence(made: Run, watch: LossWatch) -> str | None:
    """What is not finite after training, since when, and what to do; None where loss and weights are finite."""
    weights = nonfinite_weights(made.module.state_dict(), (name for name, _ in made.module.named_parameters()))
    since = watch.bad_since()
    metrics = made.trainer.callback_metrics
    losses = [name for name in _LOSSES if name in metrics and not bool(torch.isfinite(metrics[name]).all())]
    if not weights and not losses and since is None:
        return None
    faults = [f"the loss has not been finite since step {since}"] if since is not None else []
    faults += [f"{' and '.join(losses)} ended as NaN or Inf"] if losses and since is None else []
    faults += [f"NaN or Inf in {some_names(weights)}"] if weights else []
    return f"training diverged: {'; '.join(faults)}\nto train well: {_advice(made)}"


def nonfinite_weights(state: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Those of the named floating-point tensors of a state dict that hold NaN or Inf."""
    tensors = ((name, state.get(name)) for name in names)
    return [name for name, value in tensors if isinstance(value, Tensor) and not _is_finite(value)]


def some_names(names: list[str]) -> str:
    """The first few names, and how many more there are."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _is_finite(value: Tensor) -> bool:
    wide = value.float() if value.is_floating_point() and value.itemsize == 1 else value
    return bool(torch.isfinite(wide).all())


def _advice(made: Run) -> str:
    remedies = ["lower model.optimizer.lr"]
    if not made.trainer.gradient_clip_val:
        remedies.append("clip with trainer.gradient_clip_val=1.0")
    if made.precision.mode != "fp32":
        remedies.append("see whether precision=fp32 trains")
    return ", or ".join(remedies)
