"""The digits with a LightningModule of one's own: python examples/lightning_module.py bf16"""

import sys

import torch
from lightning.pytorch import LightningModule, Trainer, seed_everything
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lightning_snnprec import SNNPrecision
from lightning_snnprec.data import DigitsDataModule
from lightning_snnprec.neurons import LIFNode


class SpikingDigits(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(64, 256), LIFNode(), nn.Linear(256, 10))

    def forward(self, x_TBF: Tensor) -> Tensor:
        return self.net(x_TBF).float().mean(0)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        right = (self(batch[0]).argmax(1) == batch[1]).float().mean()
        self.log("val_acc", right, prog_bar=True, batch_size=len(batch[1]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=5e-3)


if __name__ == "__main__":
    seed_everything(0)
    precision = SNNPrecision(sys.argv[1] if len(sys.argv) > 1 else "bf16")
    trainer = Trainer(max_epochs=15, devices=1, plugins=precision, logger=False, enable_checkpointing=False)
    trainer.fit(SpikingDigits(), DigitsDataModule(time_steps=4, batch_size=64))
    print(f"validation accuracy {trainer.callback_metrics['val_acc']:.3f}")
