"""Small LightningModules and Trainers of the training tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from lightning_snnprec.neurons import LIFNode


def loader(samples: int = 40, batch_size: int = 10, features: int = 16, seed: int = 0) -> DataLoader[Any]:
    """Batches of (x `[B, features]`, y `[B]`)."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(samples, features, generator=generator) * 2
    y = x[:, :3].argmax(1)
    return DataLoader(TensorDataset(x, y), batch_size=batch_size)


class Lit(pl.LightningModule):
    """Linear-LIF-Linear over four time steps, cross-entropy, SGD; `damage` multiplies the loss of chosen batches."""

    def __init__(self, lr: float = 0.5, net: nn.Module | None = None) -> None:
        super().__init__()
        self.net = net if net is not None else nn.Sequential(nn.Linear(16, 16), LIFNode(), nn.Linear(16, 3))
        self.lr = lr
        self.damage: dict[int, float] = {}
        self.losses: list[float] = []

    @property
    def learned(self) -> bool:
        """Whether the last five losses are below the first five."""
        return sum(self.losses[-5:]) < 0.95 * sum(self.losses[:5])

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.expand(4, *x.shape)).float().mean(0)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        loss = nn.functional.cross_entropy(self(batch[0]), batch[1])
        self.losses.append(loss.item())
        return loss * self.damage.get(self.global_step, 1.0)

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.log("val_loss", nn.functional.cross_entropy(self(batch[0]), batch[1]))

    def test_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.log("test_loss", nn.functional.cross_entropy(self(batch[0]), batch[1]))

    def predict_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return self(batch[0])

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=self.lr)


def trainer(folder: Path, **arguments: Any) -> pl.Trainer:
    """A quiet CPU Trainer."""
    quiet = {
        "logger": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "enable_checkpointing": False,
    }
    return pl.Trainer(**{"accelerator": "cpu", "devices": 1, "default_root_dir": folder, **quiet, **arguments})
