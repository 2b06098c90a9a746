"""`PrecisionArtifacts`: what a training loop needs once a model is prepared, the same for all four modes."""

from __future__ import annotations

import logging
import warnings
import weakref
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from lightning_snnprec.precision.capability import Facts
from lightning_snnprec.precision.config import PrecisionConfig
from lightning_snnprec.precision.engines.protocol import Engine
from lightning_snnprec.precision.loss_scale import LossScaler
from lightning_snnprec.precision.neuron_record import (
    constant_changes,
    neuron_constants,
    restore_membrane,
    saved_membrane,
)
from lightning_snnprec.precision.orphans import check_optimizer
from lightning_snnprec.precision.plan import ConversionPlan
from lightning_snnprec.precision.report import describe
from lightning_snnprec.precision.scale_cycle import ScaleCycle

_log = logging.getLogger(__name__)
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_VERSION = 1
_ENTRIES = {"version", "config", "recipe", "plan_digest", "skipped_steps", "scaler", "engine", "neurons", "membrane"}


class PrecisionArtifacts:
    """A prepared model with its autocast context, loss scaling, reports and state.

    Made by `prepare_model_for_precision`. The loop of every mode:

        with artifacts.autocast_context():
            loss = criterion(artifacts.model(x), y)
        optimizer.zero_grad()
        artifacts.backward(loss, optimizer, clip_grad_norm=1.0)

    Attributes:
        model: the model that was prepared, converted in place.
        config: its precision.
        plan: the decision on each of its modules.
        scaler: the GradScaler, or None where gradients need no loss scale.
        cycle: the order of the scaler's calls over all optimizers, or None like the scaler.
        engine: the FP8 engine, or None outside of fp8.
        skipped_steps: optimizer steps that were skipped because gradients held Inf or NaN.
        last_step_skipped: whether the newest step was one of them.
    """

    def __init__(
        self,
        model: nn.Module,
        config: PrecisionConfig,
        plan: ConversionPlan,
        facts: Facts,
        device: torch.device,
        engine: Engine | None,
        neurons: Iterable[str],
    ) -> None:
        self.model = model
        self.config = config
        self.plan = plan
        self.facts = facts
        self.device = device
        self.engine = engine
        self.neurons = tuple(neurons)
        hidden = None if engine is None else engine.hidden_nonfinite
        self.scaler = LossScaler(config.loss_scale, device, hidden) if config.uses_loss_scale else None
        self.cycle = None if self.scaler is None else ScaleCycle(self.scaler)
        self.skipped_steps = 0
        self.last_step_skipped = False
        self._checked: weakref.WeakSet[Optimizer] = weakref.WeakSet()

    def autocast_context(self, group: Any = None) -> AbstractContextManager[None]:
        """Context of a forward and its loss; backward belongs outside.

        Args:
            group: process group over which FP8 amax is reduced; None is the default group.
        """
        dtype = _DTYPES.get(self.config.autocast_dtype)
        if self.engine is None:
            return nullcontext() if dtype is None else torch.autocast(self.device.type, dtype=dtype)
        return self._engine_context(self.engine, dtype, group)

    @contextmanager
    def _engine_context(self, engine: Engine, dtype: torch.dtype | None, group: Any) -> Iterator[None]:
        with ExitStack() as stack:
            if dtype is not None:
                stack.enter_context(torch.autocast(self.device.type, dtype=dtype))
            stack.enter_context(engine.forward_context(training=self.model.training, group=group))
            yield

    def backward(
        self,
        loss: Tensor,
        optimizer: Optimizer,
        clip_grad_norm: float | None = None,
        parameters: Iterable[nn.Parameter] | None = None,
        step_optimizer: bool = True,
    ) -> Tensor | None:
        """Back-propagates a loss and, unless told otherwise, steps the optimizer.

        Order: scale, backward, unscale, clip, step (skipped if gradients hold Inf or NaN), update of the scale.

        Args:
            loss: scalar; divide it by the number of micro-batches when accumulating.
            optimizer: holds parameters of this model; zeroing its gradients is the caller's.
            clip_grad_norm: largest total norm of the gradients, in true units, applied when stepping.
            parameters: what to clip; by default the optimizer's parameters.
            step_optimizer: False accumulates gradients only: nothing is unscaled, clipped or stepped.

        Returns:
            Total gradient norm before clipping (0-dim, on the device), or None when nothing was clipped.

        Raises:
            RuntimeError: the optimizer holds parameters that the model does not have.
            ValueError: `clip_grad_norm` is not above 0.
        """
        if clip_grad_norm is not None and not clip_grad_norm > 0:
            raise ValueError(f"clip_grad_norm={clip_grad_norm!r} must be above 0, or None for no clipping")
        if optimizer not in self._checked:
            check_optimizer(self.model, optimizer)
            self._checked.add(optimizer)
        (loss if self.cycle is None else self.cycle.scale(loss)).backward()  # type: ignore[no-untyped-call]
        if self.cycle is not None:
            self.cycle.receive(optimizer)
        if not step_optimizer:
            return None
        if self.cycle is not None:
            self.cycle.unscale(optimizer)
        norm = None
        if clip_grad_norm is not None:
            chosen = list(parameters) if parameters is not None else _parameters_of(optimizer)
            norm = nn.utils.clip_grad_norm_(chosen, clip_grad_norm)
        self.step(optimizer)
        return norm

    def step(self, optimizer: Optimizer, **kwargs: Any) -> Any:
        """Steps an optimizer whose gradients were unscaled, or skips it; counts skips and tells the engine.

        The scale is updated once no other optimizer holds gradients of it; an optimizer without gradients just steps.

        Returns:
            What `optimizer.step` returned, None for a skipped step.
        """
        scaler = self.scaler if self.scaler is not None and self.scaler.has_unscaled(optimizer) else None
        skipped = scaler is not None and scaler.found_inf(optimizer)
        result = optimizer.step(**kwargs) if scaler is None else scaler.step(optimizer, **kwargs)
        torch.clear_autocast_cache()  # a loop may step inside of its context and go on with the new weights
        if self.cycle is not None:
            self.cycle.stepped(optimizer)
        self.last_step_skipped = skipped
        self.skipped_steps += skipped
        if self.engine is not None and not skipped:
            self.engine.optimizer_stepped()
        return result

    def describe(self) -> dict[str, Any]:
        """What was asked, what the machine has, what was converted and what neurons do, as plain values.

        Keys: config, policy, capability_report, conversion_report, neurons.
        """
        return describe(self.config, self.plan, self.facts, self.model, self.neurons)

    def state_dict(self) -> dict[str, Any]:
        """Everything beyond the model and the optimizer that must survive a restart, as plain values and tensors."""
        return {
            "version": _VERSION,
            "config": self.config.to_dict(),
            "recipe": self.plan.recipe,
            "plan_digest": self.plan.digest,
            "skipped_steps": self.skipped_steps,
            "scaler": None if self.scaler is None else self.scaler.state_dict(),
            "engine": None if self.engine is None else self.engine.state(),
            "neurons": neuron_constants(self.model),
            "membrane": saved_membrane(self.model),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Puts back what `state_dict` returned; state of another precision is left out, with one line that says so.

        Raises:
            ValueError: not such a state, or one of a newer version.
        """
        self.compare_neurons(state)
        restore_membrane(self.model, state["membrane"], self.device)
        saved = PrecisionConfig.from_any(state["config"])
        before = (saved.mode, saved.fp8_engine, state["recipe"])
        now = (self.config.mode, self.config.fp8_engine, self.plan.recipe)
        if before != now:
            _log.warning("warm start: the precision was %s and is %s; its state starts fresh", before, now)
            return
        self.skipped_steps = int(state["skipped_steps"])
        if self.scaler is not None and state["scaler"]:
            self.scaler.restore(state["scaler"])
        if self.engine is not None and state["engine"] is not None:
            self.engine.load_state(state["engine"])

    def compare_neurons(self, state: dict[str, Any]) -> None:
        """Warns of neuron constants (threshold, tau, reset) that differ from those a state was saved with.

        Raises:
            ValueError: not a state of `state_dict`, or one of a newer version.
        """
        version = state.get("version")
        if not isinstance(version, int) or not set(state) >= _ENTRIES:
            raise ValueError(f"not a state of PrecisionArtifacts: it has the keys {sorted(map(str, state))}")
        if version > _VERSION:
            raise ValueError(
                f"the precision state has version {version}, this lightning_snnprec reads up to {_VERSION}; "
                "use a newer one"
            )
        changes = constant_changes(state["neurons"], self.model)
        if changes:
            warnings.warn("neurons differ from those the checkpoint was made with: " + "; ".join(changes), stacklevel=2)


def _parameters_of(optimizer: Optimizer) -> list[nn.Parameter]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]
