"""Strategies for spiking networks: Lightning's own on one device and under DDP, by the names "snn" and "snn_ddp"."""

from __future__ import annotations

from typing import Any

import torch
from lightning.fabric.plugins import CheckpointIO
from lightning.pytorch.accelerators import Accelerator
from lightning.pytorch.plugins.precision import Precision
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy, StrategyRegistry


class SNNSingleDeviceStrategy(SingleDeviceStrategy):
    """`SingleDeviceStrategy` that runs on the Trainer's device, also when chosen by name.

    Args:
        device: torch device; None takes the Trainer's `accelerator` and `devices`.
        accelerator: as in Lightning.
        checkpoint_io: as in Lightning.
        precision_plugin: as in Lightning; `Trainer(plugins=...)` does the same.
    """

    strategy_name = "snn"

    def __init__(
        self,
        device: torch.device | str | int | None = None,
        accelerator: Accelerator | None = None,
        checkpoint_io: CheckpointIO | None = None,
        precision_plugin: Precision | None = None,
    ) -> None:
        super().__init__("cpu" if device is None else device, accelerator, checkpoint_io, precision_plugin)
        self._device_given = device is not None

    @property
    def parallel_devices(self) -> list[torch.device]:
        """The device, once it is known; Lightning hands its own list over while this is empty."""
        return [self._root_device] if self._device_given else []

    @parallel_devices.setter
    def parallel_devices(self, devices: list[torch.device] | None) -> None:
        if devices and len(devices) > 1:
            raise ValueError(
                f"strategy='snn' runs on one device, the Trainer was given {len(devices)}; "
                "use strategy='snn_ddp' or devices=1"
            )
        if devices:
            self._root_device = devices[0]
            self._device_given = True


class SNNDDPStrategy(DDPStrategy):
    """`DDPStrategy` for spiking networks; takes the same arguments."""

    strategy_name = "snn_ddp"


def register_strategies() -> None:
    """Makes the strategies known to `Trainer(strategy=...)` by name."""
    known: Any = StrategyRegistry
    for strategy in (SNNSingleDeviceStrategy, SNNDDPStrategy):
        known.register(strategy.strategy_name, strategy, description=strategy.__doc__, override=True)
