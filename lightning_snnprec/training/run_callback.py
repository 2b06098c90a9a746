"""The plugin's own callback: what a precision plugin has no hook of its own for."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as pl
import torch
from typing_extensions import override

from lightning_snnprec.precision import PrecisionArtifacts
from lightning_snnprec.training.carried_state import CarriedState
from lightning_snnprec.training.schedule_hold import ScheduleHold


class RunCallback(pl.Callback):
    """Added by `SNNPrecision` as the Trainer's first callback for the time of a run.

    It tells where batches and dataloaders begin, logs the loss scale, and lets held schedules go before anyone else
    looks at them.

    Args:
        artifacts: the prepared model.
        carried: the neurons' state.
        schedules: held schedules.
    """

    def __init__(self, artifacts: PrecisionArtifacts, carried: CarriedState, schedules: ScheduleHold) -> None:
        self._artifacts = artifacts
        self._carried = carried
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
        self._carried.next_training_batch()

    @override
    def on_train_batch_end(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        every: int = trainer.log_every_n_steps  # type: ignore[attr-defined]
        scaler, skips = self._artifacts.scaler, self._artifacts.skipped_steps
        if scaler is None or every == 0 or (skips == self._skips_logged and trainer.global_step % every != 0):
            return
        self._skips_logged = skips
        pl_module.log("precision/loss_scale", scaler.scale_tensor)
        pl_module.log("precision/skipped_steps", torch.tensor(float(skips), device=pl_module.device))

    @override
    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self._schedules.release()

    @override
    def on_validation_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self._begin(batch_idx)

    @override
    def on_test_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self._begin(batch_idx)

    @override
    def on_predict_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self._begin(batch_idx)

    def _begin(self, batch_idx: int) -> None:
        if batch_idx == 0:
            self._carried.begin_evaluation()
