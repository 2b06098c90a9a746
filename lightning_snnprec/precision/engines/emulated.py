"""FP8 (and FP4) anywhere by exact simulation: casts as the recipe says, GEMMs in FP32 on the restored values.

Every operand takes exactly the values that its format has; sums are FP32, so that only the order of a real tensor
core's additions differs. It is slow, it is no speed-up of anything, and `describe()` calls it a simulation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch import distributed as dist

from lightning_snnprec.formats import AmaxHistory, random_bits, random_signs
from lightning_snnprec.precision.engines.emulated_linear import EmulatedLinear, Operand, compute_dtype
from lightning_snnprec.precision.engines.operands import (
    ROLES,
    TENSOR_FORMATS,
    BitSource,
    Cast,
    OperandCast,
    Role,
    operand_cast,
)
from lightning_snnprec.precision.engines.protocol import GradSlot, LayerKey
from lightning_snnprec.precision.norms import is_unrounded
from lightning_snnprec.rng import SavedGenerator

if TYPE_CHECKING:
    from lightning_snnprec.precision.config import PrecisionConfig


@dataclass
class _Layer:
    histories: dict[Role, AmaxHistory]
    casts: dict[Role, OperandCast]


class EmulatedEngine:
    """Simulates the recipes delayed, current, block, mxfp8 and nvfp4 on any device.

    Delayed scaling keeps one history per operand. A forward or backward records the amax of what it casts, several
    micro-batches their maximum; the histories roll and new scales are made once per optimizer step, after an
    all-reduce (maximum) over ranks. A tensor without history uses its own amax; weights are seeded. Weights are cast
    at each call, with a scale that changes once per step, so that no edit of a weight is missed. An Inf amax is not
    recorded: it would freeze the scale for as long as it stays in the history.

    Args:
        config: the run's precision.
        recipe: resolved recipe.
        device: the model's device.
    """

    name = "emulated"

    def __init__(self, config: PrecisionConfig, recipe: str, device: torch.device) -> None:
        self.config = config
        self.recipe = recipe
        self.device = device
        self.random = SavedGenerator(torch.initial_seed() % 2**63, device)
        self.signs = random_signs(self.random.generator, device)
        self._layers: dict[LayerKey, _Layer] = {}
        self._hidden = torch.zeros((), device=device)
        self._training = False
        self._recomputing = False
        self._group: Any = None

    def add_layer(self, key: LayerKey, weight: Tensor) -> None:
        """Makes histories and casts of one layer, and seeds its weight's scale."""
        histories = {role: self._history(role) for role in ROLES} if self.recipe == "delayed" else {}
        bits: BitSource | None = self._bits if self.config.stochastic_rounding else None
        casts = {role: operand_cast(self.recipe, role, histories.get(role), bits, self.signs) for role in ROLES}
        self._layers[key] = _Layer(histories, casts)
        self.seed_weight(key, weight)

    def seed_weight(self, key: LayerKey, weight: Tensor) -> None:
        """Starts a weight's history anew, from the weight itself."""
        history = self._layers[key].histories.get("weight")
        if history is not None:
            history.history.zero_()
            history.record(weight.detach().abs().amax())
            history.update()

    def quantize_input(self, key: LayerKey, x: Tensor) -> Operand:
        """Casts an input `[..., I]` from the dtype in which the layer computes."""
        dtype = compute_dtype(x)
        rounded = x.detach() if is_unrounded(x) else x.detach().to(dtype)
        values_NI = rounded.float().reshape(-1, x.shape[-1])
        training = self._in_training()
        if training:
            self._note_hidden(values_NI)
        cast = self._layers[key].casts["input"](values_NI, record=training)
        return Operand(x, cast, dtype, training)

    def linear(self, key: LayerKey, x: Operand, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Output `[..., O]` in the layer's compute dtype."""
        layer = self._layers[key]
        with torch.no_grad():
            cast = layer.casts["weight"](weight.detach().float(), record=x.training)
        output: Tensor = EmulatedLinear.apply(x.x, weight, bias, x, cast, layer, self)  # type: ignore[no-untyped-call]
        return output

    def cast_grad(self, layer: Any, grad_NO: Tensor, *, training: bool) -> Cast:
        """Casts a gradient of an output in backward; if its forward was one of training, notes what the cast hides."""
        if training:
            self._note_hidden(grad_NO)
        cast: Cast = layer.casts["grad_output"](grad_NO, record=training)
        return cast

    def grad_slot(self, output: Tensor) -> GradSlot | None:
        """None: the simulation takes gradients in the compute dtype."""
        return None

    @contextmanager
    def forward_context(self, *, training: bool, group: Any = None) -> Iterator[None]:
        """Within it, forwards with gradients record their amax if `training`."""
        before = self._training
        self._training, self._recomputing, self._group = training, training, group
        try:
            yield
        finally:
            self._training = before

    @torch.no_grad()
    def optimizer_stepped(self) -> None:
        """Ends the step: amax of all ranks, new scales, stale weights."""
        histories = [history for layer in self._layers.values() for history in layer.histories.values()]
        if histories and dist.is_available() and dist.is_initialized() and dist.get_world_size(self._group) > 1:
            newest = torch.stack([history.history[0] for history in histories])
            dist.all_reduce(newest, dist.ReduceOp.MAX, group=self._group)
            for history, amax in zip(histories, newest.unbind(), strict=True):
                history.record(amax)
        for history in histories:
            history.update()

    def hidden_nonfinite(self) -> Tensor:
        """1.0 if a cast since the last call met Inf or NaN, on any rank, else 0.0; 0-dim, on the device."""
        hidden = self._hidden.clone()
        self._hidden.zero_()
        if dist.is_available() and dist.is_initialized() and dist.get_world_size(self._group) > 1:
            dist.all_reduce(hidden, dist.ReduceOp.MAX, group=self._group)
        return hidden

    def state(self) -> dict[str, Any]:
        """Histories, scales and the random generator, as plain tensors and values."""
        return {
            "recipe": self.recipe,
            "layers": {
                key: {role: history.state() for role, history in layer.histories.items()}
                for key, layer in self._layers.items()
            },
            "random": self.random.state(),
            "signs": self.signs.cpu().clone(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Puts histories, scales and the generator back; layers that the state lacks keep their own."""
        for key, roles in state["layers"].items():
            for role, saved in roles.items():
                if key in self._layers and role in self._layers[key].histories:
                    self._layers[key].histories[role].load_state(saved)
        self.random.load_state(state["random"])
        self.signs.copy_(state["signs"])

    def to(self, device: torch.device) -> None:
        """Moves histories, signs and the generator."""
        self.device = device
        self.random.to(device)
        self.signs.data = self.signs.to(device)
        self._hidden = self._hidden.to(device)
        for layer in self._layers.values():
            for history in layer.histories.values():
                for name in ("history", "scale", "amax"):
                    setattr(history, name, getattr(history, name).to(device))

    def history(self, key: LayerKey, role: Role) -> AmaxHistory:
        """The amax history of one operand under delayed scaling.

        Raises:
            KeyError: another recipe, or no such layer.
        """
        return self._layers[key].histories[role]

    def _history(self, role: Role) -> AmaxHistory:
        config = self.config
        return AmaxHistory(
            config.amax_history_len, config.amax_compute_algo, config.margin, TENSOR_FORMATS[role], self.device
        )

    def _bits(self, x: Tensor) -> Tensor:
        return random_bits(x, self.random.generator)

    def _note_hidden(self, x: Tensor) -> None:
        self._hidden.copy_(torch.maximum(self._hidden, (~x.isfinite()).any().float()))

    def _in_training(self) -> bool:
        """Whether a forward is one of training: within its context, or recomputed in the backward that follows it."""
        in_backward = torch._C._current_graph_task_id() != -1
        return torch.is_grad_enabled() and (self._training or (in_backward and self._recomputing))
