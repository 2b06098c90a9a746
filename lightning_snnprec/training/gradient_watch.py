"""Telling a loss-scale cycle which optimizers received gradients, and refusing steps that go past it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from lightning_snnprec.precision.scale_cycle import ScaleCycle


class GradientWatch:
    """Hooks on optimizers and their parameters, for the time of a fit.

    Args:
        cycle: told of gradients, asked about steps.
        optimizers: those of the run.
        manual: also watch the parameters. Manual optimisation may leave gradients for a later step; automatic
            optimisation steps its one optimizer on all it has.
    """

    def __init__(self, cycle: ScaleCycle, optimizers: Sequence[Optimizer], *, manual: bool) -> None:
        self._handles: list[Any] = [
            optimizer.register_step_pre_hook(cycle.refuse_scaled_step) for optimizer in optimizers
        ]
        for optimizer in optimizers if manual else ():
            receive = partial(_receive, cycle.receive, optimizer)
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if parameter.requires_grad:
                        self._handles.append(parameter.register_post_accumulate_grad_hook(receive))

    def remove(self) -> None:
        """Takes every hook off."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def _receive(receive: Callable[[Optimizer], None], optimizer: Optimizer, _: Tensor) -> None:
    receive(optimizer)
