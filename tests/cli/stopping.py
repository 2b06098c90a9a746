"""Callbacks that end a run early, named by recipes of tests."""

from __future__ import annotations

import os
import signal
from typing import Any

import lightning.pytorch as pl
import torch


class Interrupt(pl.Callback):
    """Ctrl-C at the start of an epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.current_epoch == self.epoch:
            raise KeyboardInterrupt


class Terminate(Interrupt):
    """SIGTERM to this process at the start of an epoch."""

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.current_epoch == self.epoch:
            os.kill(os.getpid(), signal.SIGTERM)


class Poison(pl.Callback):
    """Makes the last bias NaN before the step of that number; a spiking neuron would hide NaN from the loss."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step + 1 == self.step:
            with torch.no_grad():
                list(pl_module.parameters())[-1][0] = torch.nan


class Fault(pl.Callback):
    """A fault of the program at the end of the first step."""

    def on_train_batch_end(self, *arguments: object) -> None:
        raise ZeroDivisionError("a fault of the program")


class FaultyMaking(pl.Callback):
    """A fault of the program while a recipe is built."""

    def __init__(self) -> None:
        raise ZeroDivisionError("a fault of the program")
