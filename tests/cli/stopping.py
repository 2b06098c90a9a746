"""Callbacks that end a run early, named by recipes of tests."""

from __future__ import annotations

import lightning.pytorch as pl


class Interrupt(pl.Callback):
    """Ctrl-C at the start of an epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        if trainer.current_epoch == self.epoch:
            raise KeyboardInterrupt


class Fault(pl.Callback):
    """A fault of the program at the end of the first step."""

    def on_train_batch_end(self, *arguments: object) -> None:
        raise ZeroDivisionError("a fault of the program")


class FaultyMaking(pl.Callback):
    """A fault of the program while a recipe is built."""

    def __init__(self) -> None:
        raise ZeroDivisionError("a fault of the program")
