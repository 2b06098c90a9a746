"""The plugin's own callback: it logs the loss scale and lets held schedules go before anyone looks at them."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import torch
from typing_extensions import override

from lightning_snnprec.precision import PrecisionArtifacts
from lightning_snnprec.training.schedule_hold import ScheduleHold


class StepCallback(pl.Callback):
    """Added by `SNNPrecision` as the Trainer's first callback for the time of a fit with a GradScaler.

    Args:
        artifacts: the prepared model.
        schedules: released at the next batch, before other callbacks read the schedulers.
    """

    def __init__(self, artifacts: PrecisionArtifacts, schedules: ScheduleHold) -> None:
        self._artifacts = artifacts
        self._schedules = schedules
        self._skips_logged = artifacts.skipped_steps

    @override
    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._schedules.release()

    @override
    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        self._schedules.release()

    @override
    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        skips = self._artifacts.skipped_steps
        if skips == self._skips_logged and trainer.global_step % trainer.log_every_n_steps != 0:  # type: ignore[attr-defined]
            return
        self._skips_logged = skips
        scaler = self._artifacts.scaler
        assert scaler is not None
        pl_module.log("precision/loss_scale", scaler.scale_tensor)
        pl_module.log("precision/skipped_steps", torch.tensor(float(skips), device=pl_module.device))

    @override
    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._schedules.release()
