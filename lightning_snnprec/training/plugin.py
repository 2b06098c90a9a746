"""`SNNPrecision`: the Lightning plugin that makes a model's precision what a `PrecisionConfig` says."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.plugins.precision import Precision
from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import GradClipAlgorithmType, rank_zero_info
from torch import Tensor, nn
from torch.optim import LBFGS, Optimizer
from typing_extensions import override

from lightning_snnprec.precision import PrecisionArtifacts, PrecisionConfig, prepare_model_for_precision
from lightning_snnprec.precision.orphans import check_optimizer
from lightning_snnprec.precision.scale_cycle import ScaleCycle
from lightning_snnprec.training.carried_state import CarriedState
from lightning_snnprec.training.gradient_watch import GradientWatch
from lightning_snnprec.training.run_callback import RunCallback
from lightning_snnprec.training.schedule_hold import ScheduleHold

_log = logging.getLogger(__name__)
_LIGHTNING_NAMES = {"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}


class SNNPrecision(Precision):
    """Trains a spiking network in FP32, FP16, BF16 or FP8, as `Trainer(plugins=SNNPrecision("fp16"))`.

    It moves the model to its device, converts it in place and only then lets the optimizers be made; runs every step
    under autocast; scales the loss where gradients pass through FP16, unscales before any clipping, and steps the
    scale once per iteration; starts each batch with neurons at rest (or with their carried state detached); keeps
    evaluation from touching the state that training carries.

    A step whose gradients hold Inf or NaN is skipped: it counts in `skipped_steps`, is logged as
    `precision/skipped_steps` beside `precision/loss_scale`, and holds learning-rate schedulers of interval "step"
    back for that step. `trainer.global_step` counts it, as Lightning does.

    An instance given to a second Trainer works: that Trainer gets a plugin of its own with the same configuration, to
    be found at `trainer.precision_plugin`.

    Args:
        config: a mode, a mapping of `PrecisionConfig` fields, or a `PrecisionConfig`.
        **fields: further `PrecisionConfig` fields, such as `fp8_recipe="delayed"`.

    Raises:
        ValueError: a bad configuration; all faults at once.
    """

    def __init__(self, config: PrecisionConfig | Mapping[str, Any] | str | None = "bf16", **fields: Any) -> None:
        self.config = _merged(config, fields)
        self.precision = _LIGHTNING_NAMES[self.config.autocast_dtype]  # type: ignore[assignment]
        self._owner: weakref.ref[pl.Trainer] | None = None
        self._forget()

    def _forget(self) -> None:
        self._artifacts: PrecisionArtifacts | None = None
        self._carried: CarriedState | None = None
        self._schedules = ScheduleHold()
        self._callback: RunCallback | None = None
        self._watch: GradientWatch | None = None
        self._hooks: list[Any] = []

    @property
    def artifacts(self) -> PrecisionArtifacts:
        """The prepared model's context, scaler and reports.

        Raises:
            RuntimeError: no run has begun yet.
        """
        if self._artifacts is None:
            raise RuntimeError("SNNPrecision has prepared no model yet; it does so when the Trainer starts a run")
        return self._artifacts

    @property
    def _cycle(self) -> ScaleCycle | None:
        return None if self._artifacts is None else self._artifacts.cycle

    @property
    def scaler(self) -> torch.amp.GradScaler | None:
        """The GradScaler of the current run, or None."""
        return None if self._artifacts is None else self._artifacts.scaler

    @property
    def skipped_steps(self) -> int:
        """Optimizer steps skipped so far because gradients held Inf or NaN."""
        return 0 if self._artifacts is None else self._artifacts.skipped_steps

    @override
    def convert_module(self, module: nn.Module) -> nn.Module:
        """Moves the module to the run's device and converts it, in place."""
        if not isinstance(module, pl.LightningModule):
            raise TypeError(
                f"SNNPrecision is a plugin of lightning.pytorch.Trainer and got a {type(module).__name__}; with Fabric "
                "or a loop of your own, call lightning_snnprec.prepare_model_for_precision(model, device, config)"
            )
        trainer = module.trainer
        owner = None if self._owner is None else self._owner()
        if owner is not None and owner is not trainer:
            twin = type(self)(self.config)
            trainer.strategy.precision_plugin = twin
            return twin.convert_module(module)
        if owner is None:
            self._forget()
            self._owner = weakref.ref(trainer)
        _check_strategy(trainer)
        self._prepare(module, trainer)
        return module

    def _prepare(self, module: pl.LightningModule, trainer: pl.Trainer) -> None:
        made = prepare_model_for_precision(module, trainer.strategy.root_device, self.config)
        former = self._artifacts
        kept = former is not None and former.model is module and former.device == made.device
        if former is None or not kept or former.engine is not made.engine:
            self._artifacts = former = made
            rank_zero_info(made.plan.summary())
        self._carried = CarriedState(module)
        self._callback = RunCallback(former, self._carried, self._schedules)
        trainer.callbacks.insert(0, self._callback)  # type: ignore[attr-defined]

    @override
    def connect(
        self, model: nn.Module, optimizers: list[Optimizer], lr_schedulers: list[Any]
    ) -> tuple[nn.Module, list[Optimizer], list[Any]]:
        """Checks that the optimizers train the model's own parameters."""
        for optimizer in optimizers:
            check_optimizer(self.artifacts.model, optimizer)
            if self.scaler is not None and isinstance(optimizer, LBFGS):
                raise RuntimeError(
                    "LBFGS evaluates the loss several times a step, which a GradScaler cannot follow; "
                    "use mode='bf16' or "
                    "'fp32', or another optimizer"
                )
        self._hooks += [optimizer.register_step_post_hook(_forget_casts) for optimizer in optimizers]
        self._schedules.configs = lr_schedulers
        if self._cycle is not None:
            module = self.artifacts.model
            assert isinstance(module, pl.LightningModule)
            self._watch = GradientWatch(self._cycle, optimizers, manual=not module.automatic_optimization)
        return model, optimizers, lr_schedulers

    @override
    @contextmanager
    def forward_context(self) -> Iterator[None]:
        """Autocast, and the engine's context under fp8."""
        with nullcontext() if self._artifacts is None else self._artifacts.autocast_context():
            yield

    @override
    @contextmanager
    def train_step_context(self) -> Iterator[None]:
        """Context of a training step: neurons begin a new batch."""
        if self._cycle is not None:
            self._cycle.finish()
        if self._carried is not None:
            self._carried.begin_training_step()
        with self.forward_context():
            yield

    @contextmanager
    def _evaluation_context(self) -> Iterator[None]:
        with nullcontext() if self._carried is None else self._carried.evaluation_batch(), self.forward_context():
            yield

    @override
    @contextmanager
    def val_step_context(self) -> Iterator[None]:
        """Context of a validation step: the state that training carries is left alone."""
        with self._evaluation_context():
            yield

    @override
    @contextmanager
    def test_step_context(self) -> Iterator[None]:
        """Context of a test step: the state that training carries is left alone."""
        with self._evaluation_context():
            yield

    @override
    @contextmanager
    def predict_step_context(self) -> Iterator[None]:
        """Context of a predict step: the state that training carries is left alone."""
        with self._evaluation_context():
            yield

    @override
    def pre_backward(self, tensor: Tensor, module: pl.LightningModule) -> Tensor:  # type: ignore[override]
        """Scales the loss."""
        if self._cycle is not None:
            tensor = self._cycle.scale(tensor)
        return super().pre_backward(tensor, module)

    @override
    def optimizer_step(  # type: ignore[override]
        self, optimizer: Optimizer, model: pl.LightningModule, closure: Callable[[], Any], **kwargs: Any
    ) -> Any:
        """Closure, unscale, hooks and clipping, step (or skip), update of the scale, in that order."""
        if self._cycle is None:
            wrapped = partial(self._wrap_closure, model, optimizer, closure)
            return self.artifacts.step(optimizer, closure=wrapped, **kwargs)
        result = closure()
        if result is None and model.automatic_optimization:
            return None  # the training step asked for no backward
        self._cycle.unscale(optimizer)
        self._after_closure(model, optimizer)
        result = self.artifacts.step(optimizer, **kwargs)
        if model.automatic_optimization and self.artifacts.last_step_skipped:
            self._schedules.hold()
        return result

    @override
    def clip_gradients(
        self,
        optimizer: Optimizer,
        clip_val: int | float = 0.0,
        gradient_clip_algorithm: GradClipAlgorithmType = GradClipAlgorithmType.NORM,
    ) -> None:
        """Clips gradients in true units, in manual optimisation too."""
        plain = optimizer.optimizer if isinstance(optimizer, LightningOptimizer) else optimizer
        if self._cycle is not None and clip_val > 0:
            self._cycle.unscale(plain)
        super().clip_gradients(plain, clip_val, gradient_clip_algorithm)

    @override
    def state_dict(self) -> dict[str, Any]:
        """Scale, skip count, FP8 state, carried membrane and the configuration they belong to."""
        if self._artifacts is None:
            return {}
        if self._cycle is not None:
            self._cycle.finish()
        return self._artifacts.state_dict()

    @override
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Puts back what `state_dict` saved when fitting; otherwise only compares the neurons' constants."""
        trainer = None if self._owner is None else self._owner()
        if not state_dict or trainer is None:
            return
        if trainer.state.fn == TrainerFn.FITTING:
            self.artifacts.load_state_dict(state_dict)
        else:
            self.artifacts.compare_neurons(state_dict)

    @override
    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Takes over what another plugin's name stands over: a subclass, or Lightning's own `MixedPrecision`."""
        names = [kind.__qualname__ for kind in type(self).__mro__ if issubclass(kind, SNNPrecision)]
        saved = next((checkpoint[name] for name in names if name in checkpoint), None)
        if saved is not None and names[0] not in checkpoint:
            self.load_state_dict(saved)
        if saved is None and self.config.mode == "fp8":
            _log.warning("warm start: the checkpoint has no precision state; FP8 state starts fresh")
        theirs = checkpoint.get("MixedPrecision")
        if theirs and self._artifacts is not None and self._artifacts.scaler is not None:
            self._artifacts.scaler.restore(theirs)

    @override
    def teardown(self) -> None:
        """Takes the plugin's own callback off the Trainer again."""
        self._schedules.release()
        trainer = None if self._owner is None else self._owner()
        if trainer is not None and self._callback in trainer.callbacks:  # type: ignore[attr-defined]
            trainer.callbacks.remove(self._callback)  # type: ignore[attr-defined]
        self._callback = None
        if self._watch is not None:
            self._watch.remove()
            self._watch = None
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.config.mode!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {"config": self.config}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["config"])  # type: ignore[misc]


def _forget_casts(*_: Any) -> None:
    """Step post-hook: a forward later in the same training step must cast the new weights."""
    torch.clear_autocast_cache()


def _merged(config: PrecisionConfig | Mapping[str, Any] | str | None, fields: dict[str, Any]) -> PrecisionConfig:
    config = "bf16" if config is None else config
    if not fields:
        return PrecisionConfig.from_any(config)
    if isinstance(config, PrecisionConfig):
        config = config.to_dict()
    given: dict[str, Any] = dict(config) if isinstance(config, Mapping) else {"mode": config}
    if config != "bf16" and given.get("mode", fields.get("mode")) != fields.get("mode", given.get("mode")):
        raise ValueError(f"mode is given twice, as {given['mode']!r} and as {fields['mode']!r}; keep one")
    return PrecisionConfig.from_any({**given, **fields})


def _check_strategy(trainer: pl.Trainer) -> None:
    strategy = trainer.strategy
    if not isinstance(strategy, SingleDeviceStrategy | DDPStrategy):
        name = type(strategy).__name__
        raise RuntimeError(
            f"SNNPrecision runs on one device or under DDP; {name} takes Lightning's own precision only: use "
            "Trainer(precision='bf16-mixed') or '32-true' with it, or strategy='snn_ddp' for fp8 and neuron precision"
        )
    flag = trainer._accelerator_connector._precision_flag
    if flag != "32-true":
        raise RuntimeError(
            f"Trainer(precision={flag!r}) and the SNNPrecision of the strategy contradict each other; "
            "leave precision= out"
        )
