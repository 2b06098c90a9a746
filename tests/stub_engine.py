"""An FP8 engine with identity numerics: everything of an engine but the rounding, so that conversion can be tested."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_snnprec.precision import PrecisionConfig


class StubSlot:
    """Takes a gradient and keeps it."""

    def fill(self, payload: Tensor, scale: Tensor, amax: Tensor) -> None:
        self.filled = (payload, scale, amax)


class StubEngine:
    """Records what a converted layer asks of its engine; computes a plain linear layer."""

    name = "emulated"

    def __init__(self, config: PrecisionConfig, recipe: str, device: torch.device) -> None:
        self.config, self.recipe, self.device = config, recipe, device
        self.weight_amax: dict[str, Tensor] = {}
        self.input_amax: dict[str, Tensor] = {}
        self.training = False
        self.optimizer_steps = 0

    def add_layer(self, key: str, weight: Tensor) -> None:
        self.seed_weight(key, weight)
        self.input_amax[key] = torch.zeros((), device=weight.device)

    def seed_weight(self, key: str, weight: Tensor) -> None:
        self.weight_amax[key] = weight.abs().amax().clone()

    def quantize_input(self, key: str, x: Tensor) -> Tensor:
        if self.training and torch.is_grad_enabled():
            self.input_amax[key] = torch.maximum(self.input_amax[key], x.detach().abs().amax().float())
        return x

    def linear(self, key: str, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        output = F.linear(x, weight, bias)
        output.grad_slot = StubSlot()  # type: ignore[attr-defined]
        return output

    def grad_slot(self, output: Tensor) -> StubSlot | None:
        return getattr(output, "grad_slot", None)

    @contextmanager
    def forward_context(self, *, training: bool, group: Any = None) -> Iterator[None]:
        self.training = training
        try:
            yield
        finally:
            self.training = False

    def hidden_nonfinite(self) -> Tensor:
        return torch.zeros((), device=self.device)

    def optimizer_stepped(self) -> None:
        self.optimizer_steps += 1

    def state(self) -> dict[str, Any]:
        return {"input_amax": {key: amax.clone() for key, amax in self.input_amax.items()}}

    def load_state(self, state: dict[str, Any]) -> None:
        self.input_amax.update({key: amax.to(self.device) for key, amax in state["input_amax"].items()})

    def to(self, device: torch.device) -> None:
        self.device = device
        self.weight_amax = {key: amax.to(device) for key, amax in self.weight_amax.items()}
        self.input_amax = {key: amax.to(device) for key, amax in self.input_amax.items()}
