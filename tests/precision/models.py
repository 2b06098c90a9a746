"""Small models of the precision tests."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lightning_snnprec.neurons import LIFNode


def spiking_net(width: int = 64, classes: int = 10) -> nn.Sequential:
    """Linear, LIF, Linear over `[T, B, width]`."""
    return nn.Sequential(nn.Linear(width, width), LIFNode(), nn.Linear(width, classes))


class Scaled(nn.Linear):
    """A Linear subclass with a forward of its own: times a learnable gain."""

    def __init__(self, *sizes: int) -> None:
        super().__init__(*sizes)
        self.gain = nn.Parameter(torch.tensor(2.0))

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) * self.gain


class Adapter(nn.Module):
    """A LoRA-like wrapper: base layer plus a low-rank path through two Parameters."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.base = nn.Linear(width, width)
        self.A = nn.Parameter(torch.randn(4, width))
        self.B = nn.Parameter(torch.randn(width, 4))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + x @ self.A.T @ self.B.T
