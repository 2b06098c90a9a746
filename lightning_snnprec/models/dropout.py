"""Dropout for sequences of spikes."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import override

from lightning_snnprec.arguments import number_fault, raise_faults


class TimeSharedDropout(nn.Module):
    """Dropout whose mask is the same at all time steps of a sample.

    A mask per step would average out over time; one mask per presentation drops a neuron, as in Lee et al.,
    "Enabling spike-based backpropagation for training deep neural network architectures" (2020), 3.5. What is
    kept is scaled by 1 / (1 - p), so spikes that pass are not 0 or 1 any more. Draws from torch's global
    generator.

    Args:
        p: probability of dropping, in [0, 1).

    Raises:
        ValueError: p outside [0, 1).
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        raise_faults(type(self).__name__, [number_fault("p", p, least=0, below=1)])
        self.p = float(p)

    @override
    def forward(self, x_TBN: Tensor) -> Tensor:
        """Drops whole sequences of `x_TBN` `[T, B, ...]` in training; gives back the input in evaluation."""
        if not self.training or self.p == 0:
            return x_TBN
        return x_TBN * F.dropout(torch.ones_like(x_TBN[0]), self.p)

    @override
    def extra_repr(self) -> str:
        """The probability, for `repr`."""
        return f"p={self.p:g}"
