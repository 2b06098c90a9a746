"""One cycle of loss scaling: scale losses, unscale each optimizer once, step each, update the scale once.

PyTorch asks for one `GradScaler.update` per iteration, after every optimizer of that iteration stepped: an update in
between would unscale the next optimizer's gradients by another factor than their loss was scaled by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from lightning_snnprec.precision import PrecisionArtifacts


class ScaleCycle:
    """Keeps the order of a GradScaler's calls right for automatic and manual optimisation, with several optimizers.

    Args:
        artifacts: a prepared model that has a scaler.
    """

    def __init__(self, artifacts: PrecisionArtifacts) -> None:
        assert artifacts.scaler is not None
        self.optimizers: Sequence[Optimizer] = ()
        self._artifacts = artifacts
        self._scaler = artifacts.scaler
        self._scaled = False
        self._unscaled: set[int] = set()
        self._stepped: set[int] = set()

    def scale(self, loss: Tensor) -> Tensor:
        """The loss times the scale.

        A backward that follows a step begins a new cycle, unless an optimizer that has not stepped still holds
        gradients of this one.
        """
        if self._stepped and not self._others_hold_gradients():
            self.finish()
        self._scaled = True
        return self._scaler.scale(loss)

    def unscale(self, optimizer: Optimizer) -> None:
        """Divides an optimizer's gradients by the scale; a second call in the same cycle does nothing.

        Raises:
            RuntimeError: the backward went past the scaler.
        """
        if not self._scaled:
            raise RuntimeError(
                "an optimizer was stepped under fp16 without a scaled backward; in manual optimisation call "
                "self.manual_backward(loss) instead of loss.backward()"
            )
        if id(optimizer) in self._stepped:
            raise RuntimeError(
                f"{type(optimizer).__name__} was stepped twice while another optimizer still holds gradients of "
                "the same "
                "loss scale; step the other one first, or clear its gradients"
            )
        if id(optimizer) not in self._unscaled:
            self._scaler.unscale_(optimizer)
            self._unscaled.add(id(optimizer))

    def step(self, optimizer: Optimizer, **kwargs: Any) -> Any:
        """Steps an unscaled optimizer, or skips it when its gradients hold Inf or NaN."""
        result = self._artifacts.step(optimizer, **kwargs)
        self._stepped.add(id(optimizer))
        if all(id(other) in self._stepped for other in self.optimizers):
            self.finish()
        return result

    def finish(self) -> None:
        """Updates the scale if an optimizer stepped since the last update."""
        if self._stepped:
            self._scaler.update()
            self._scaled = False
            self._unscaled.clear()
            self._stepped.clear()

    def _others_hold_gradients(self) -> bool:
        return any(
            parameter.grad is not None
            for optimizer in self.optimizers
            if id(optimizer) not in self._stepped
            for group in optimizer.param_groups
            for parameter in group["params"]
        )
