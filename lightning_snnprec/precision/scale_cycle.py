"""One cycle of loss scaling: from one update of the scale to the next.

PyTorch asks for one `GradScaler.update` per iteration, after every optimizer of that iteration stepped: an update in
between would unscale the next optimizer's gradients by another factor than their loss was scaled by. So the scale is
updated once no optimizer holds gradients of the current scale that it has not stepped on.
"""

from __future__ import annotations

import weakref
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from lightning_snnprec.precision.loss_scale import LossScaler


class ScaleCycle:
    """Keeps the order of a GradScaler's calls right for any number of optimizers, stepping whenever they like.

    Args:
        scaler: the scaler.
    """

    def __init__(self, scaler: LossScaler) -> None:
        self._scaler = scaler
        self._scaled = False
        self._stepped_any = False
        self._received: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._unscaled: weakref.WeakSet[Optimizer] = weakref.WeakSet()
        self._stepped: weakref.WeakSet[Optimizer] = weakref.WeakSet()

    def scale(self, loss: Tensor) -> Tensor:
        """The loss times the scale."""
        self._scaled = True
        return self._scaler.scale(loss)

    def receive(self, optimizer: Optimizer) -> None:
        """Notes that an optimizer's parameters received gradients of the current scale."""
        self._received.add(optimizer)

    def unscale(self, optimizer: Optimizer) -> None:
        """Divides an optimizer's gradients by the scale; a second call before its step does nothing.

        Raises:
            RuntimeError: the backward went past the scaler.
        """
        if optimizer in self._unscaled or not _has_gradients(optimizer):
            return
        if not self._scaled:
            raise RuntimeError(
                "an optimizer was stepped under fp16 without a scaled backward; in manual optimisation call "
                "self.manual_backward(loss) instead of loss.backward()"
            )
        if optimizer in self._stepped:
            self._scaler.reopen(optimizer)
        self._scaler.unscale_(optimizer)
        self._unscaled.add(optimizer)

    def stepped(self, optimizer: Optimizer) -> None:
        """Notes that an optimizer stepped, or was skipped, and updates the scale if nobody else needs it."""
        self._stepped_any |= optimizer in self._unscaled
        self._stepped.add(optimizer)
        self._unscaled.discard(optimizer)
        self._received.discard(optimizer)
        self.finish()

    def finish(self) -> None:
        """Updates the scale if an optimizer stepped since the last update and none holds gradients of this scale."""
        if self._stepped_any and not any(_has_nonzero_gradients(optimizer) for optimizer in self._received):
            self._scaler.update()
            self._scaled = self._stepped_any = False
            self._received.clear()
            self._unscaled.clear()
            self._stepped.clear()

    def refuse_scaled_step(self, optimizer: Optimizer, *_: Any) -> None:
        """Step pre-hook of an optimizer.

        Raises:
            RuntimeError: it is about to step on gradients that are still multiplied by the scale.
        """
        if self._scaled and optimizer not in self._unscaled and _has_gradients(optimizer):
            raise RuntimeError(
                f"{type(optimizer).__name__}.step() was called past the GradScaler, on gradients that are still "
                "multiplied by the loss scale; in manual optimisation step what self.optimizers() returns"
            )


def _has_gradients(optimizer: Optimizer) -> bool:
    return any(parameter.grad is not None for group in optimizer.param_groups for parameter in group["params"])


def _has_nonzero_gradients(optimizer: Optimizer) -> bool:
    return any(
        parameter.grad is not None and bool(parameter.grad.count_nonzero())
        for group in optimizer.param_groups
        for parameter in group["params"]
    )
