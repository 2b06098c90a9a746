"""What every FP8 engine does for a converted layer.

A converted layer keeps its own Parameters and hands them over on each call; whatever an engine remembers between
calls (amax histories, scales, cached FP8 weights) lives in the engine, under the layer's key, outside of
`nn.Module.modules()`. An engine holds no reference to modules, so that copying or pickling a model copies its
engine too, and nothing else.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import torch
from torch import Tensor

if TYPE_CHECKING:
    from lightning_snnprec.precision.config import PrecisionConfig

LayerKey: TypeAlias = str
"""Name of a converted layer inside the prepared model, as in `named_modules()`."""


class GradSlot(Protocol):
    """Place where whoever consumes a layer's output may leave that output's gradient, already in FP8.

    A neuron that follows a converted layer can write its input gradient in FP8 directly; the layer's backward then
    takes it from here and casts nothing.
    """

    def fill(self, payload: Tensor, scale: Tensor, amax: Tensor) -> None:
        """Hands over a gradient.

        Args:
            payload: FP8 codes, shape of the layer's output.
            scale: FP32 scalar by which the gradient was multiplied before the cast.
            amax: FP32 scalar, largest magnitude before the cast.
        """


class Engine(Protocol):
    """The numerics of converted layers: casts, GEMMs, and the state of both."""

    name: str
    recipe: str
    config: PrecisionConfig

    def __init__(self, config: PrecisionConfig, recipe: str, device: torch.device) -> None:
        """Makes an engine without layers.

        Args:
            config: the run's precision, already validated.
            recipe: scaling recipe, resolved (never "auto").
            device: device of the model.
        """

    def add_layer(self, key: LayerKey, weight: Tensor) -> None:
        """Makes the state of one layer; `weight` `[out, in]` seeds the weight's scale."""

    def seed_weight(self, key: LayerKey, weight: Tensor) -> None:
        """Forgets what was known of a weight and seeds its scale anew: called after a weight load."""

    def quantize_input(self, key: LayerKey, x: Tensor) -> Any:
        """Casts a layer's input `[..., in]` for its GEMMs; the result goes to `linear` as it is."""

    def linear(self, key: LayerKey, x: Any, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Output `[..., out]` of `x @ weight.T + bias`, differentiable in input, weight and bias.

        Args:
            key: the layer.
            x: what `quantize_input` returned.
            weight: `[out, in]`, the module's own Parameter (or a view of it).
            bias: `[out]` or None.
        """

    def grad_slot(self, output: Tensor) -> GradSlot | None:
        """The slot that `output` of `linear` carries, or None when this engine has none for it."""

    def forward_context(self, *, training: bool, group: Any = None) -> AbstractContextManager[None]:
        """Context of one forward; outside of training no scale, history or cache that training uses changes.

        Args:
            training: whether the model is in training mode; a call without gradients (`torch.is_grad_enabled()` is
                False) is no training all the same.
            group: process group over which amax is reduced; None is the default group.
        """

    def hidden_nonfinite(self) -> Tensor:
        """1.0 if a training cast since the last call met Inf or NaN on any rank, else 0.0; 0-dim, on the device.

        An FP8 cast saturates, even Inf, so that a GradScaler would never see it.
        """

    def optimizer_stepped(self) -> None:
        """Tells that weights changed, so that cached FP8 weights are stale."""

    def state(self) -> dict[str, Any]:
        """Everything that must survive a restart, as plain tensors and Python values."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Puts back what `state` returned; layers that are not in it keep their fresh state."""

    def to(self, device: torch.device) -> None:
        """Moves the engine's own tensors, in place."""
