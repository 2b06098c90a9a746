"""The base of all neurons: common arguments, step modes, and the membrane as the module's state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, get_args

import torch
from torch import Tensor, nn

from lightning_snnprec.arguments import bool_fault, choice_fault, raise_faults
from lightning_snnprec.neurons.dynamics import (
    Firing,
    Step,
    SurrogateFunction,
    check_input,
    firing,
    membrane_dtype,
    run_sequence,
    run_step,
)
from lightning_snnprec.neurons.params import (
    NeuronPolicy,
    StepMode,
    firing_faults,
    unsupported_policy,
)
from lightning_snnprec.neurons.surrogate import Sigmoid


class BaseNode(nn.Module, ABC):
    """What all neurons share: threshold, reset, surrogate, step mode, and the membrane as state.

    Input is a current of any real dtype: [T, B, ...] with `step_mode="m"`, one time step [B, ...] with "s". Spikes
    have its shape and dtype (torch's default float dtype for bool and integer input). The membrane is FP32, FP64
    for FP64 input, or `policy.storage`, whatever dtype the module's parameters or autocast have. T = 0 is an error;
    an empty batch gives empty spikes. NaN and Inf: see `lightning_snnprec.neurons.dynamics`.

    The membrane is not a parameter, not a buffer and not in `state_dict()`. With `step_mode="m"` every forward
    starts from rest unless `stateful=True`; with "s" it is carried from call to call until `reset()`. A carried
    membrane keeps its graph until `begin_batch()` or `detach()`, and is never modified in place.

    Attributes:
        v: the membrane after the last forward, [B, ...]; at rest a float, `v_reset` or 0.
        policy: how the membrane is stored and computed; None is FP32 and any kernel. Precision preparation sets it.

    Args:
        v_threshold: membrane potential at which a neuron fires.
        v_reset: membrane potential after a spike (hard reset); None subtracts `v_threshold` instead (soft reset).
        surrogate_function: maps h - v_threshold to spikes and gives their gradient; None is `surrogate.Sigmoid()`.
        detach_reset: no gradient through the spikes in the reset.
        step_mode: "m", many time steps a call, or "s", a single one.
        store_v_seq: keep the membrane after every time step, see `v_seq`.
        stateful: carry the membrane over forwards and batches until `reset()`.

    Raises:
        ValueError: bad arguments, all listed; in forward, an input of the wrong rank or without time steps, or a
            carried membrane whose shape does not fit the input.
        RuntimeError: in forward, a policy that plain torch cannot follow, or a recomputation by activation
            checkpointing that would advance a carried membrane twice (see `checkpoint_contexts`).
    """

    surrogate_function: SurrogateFunction
    v: Tensor | float
    _v_seq: list[Tensor]

    def __init__(
        self,
        v_threshold: float = 1.0,
        v_reset: float | None = 0.0,
        surrogate_function: SurrogateFunction | None = None,
        detach_reset: bool = False,
        step_mode: StepMode = "m",
        store_v_seq: bool = False,
        *,
        stateful: bool = False,
    ) -> None:
        raise_faults(
            type(self).__name__,
            [
                *firing_faults(v_threshold, v_reset, detach_reset, surrogate_function),
                choice_fault("step_mode", step_mode, get_args(StepMode)),
                bool_fault("store_v_seq", store_v_seq),
                bool_fault("stateful", stateful),
            ],
        )
        super().__init__()
        self.v_threshold = float(v_threshold)
        self.v_reset = None if v_reset is None else float(v_reset)
        self.surrogate_function = Sigmoid() if surrogate_function is None else surrogate_function
        self.detach_reset = detach_reset
        self.step_mode = step_mode
        self.store_v_seq = store_v_seq
        self.stateful = stateful
        self.policy: NeuronPolicy | None = None
        self._recomputing = False
        self.reset()

    @abstractmethod
    def dynamics(self) -> Step:
        """One time step as a function (x, v) -> (spikes, next v) of the present parameters, see `Step`."""

    def firing(self) -> Firing:
        """Threshold and reset, the half of a step that all neurons share."""
        return firing(self.v_threshold, self.v_reset, self.surrogate_function, self.detach_reset)

    def forward(self, x: Tensor) -> Tensor:
        """Spikes for the input currents `x`, [T, B, ...] or, with `step_mode="s"`, [B, ...]."""
        if reason := unsupported_policy(self.policy):
            raise RuntimeError(f"{type(self).__name__}: {reason}")
        if self.step_mode == "m":
            return self._forward_sequence(x)
        if self.step_mode == "s":
            return self._forward_step(x)
        raise ValueError(choice_fault("step_mode", self.step_mode, get_args(StepMode)))

    def _forward_sequence(self, x_TBN: Tensor) -> Tensor:
        check_input(x_TBN, sequence=True)
        v = self._initial_membrane(x_TBN, x_TBN.shape[1:])
        spikes, v, v_seq = run_sequence(self.dynamics(), x_TBN, v, self.store_v_seq)
        # torch.export warns of every attribute that is set; one that no forward reads can be left out.
        if self.carries or not torch.compiler.is_exporting():
            self.v, self._v_seq = v, [] if v_seq is None else [v_seq]
        return spikes

    def _forward_step(self, x_BN: Tensor) -> Tensor:
        check_input(x_BN, sequence=False)
        spikes, v = run_step(self.dynamics(), x_BN, self._initial_membrane(x_BN, x_BN.shape))
        self.v = v
        if self.store_v_seq:
            self._v_seq = [*self._v_seq, v.unsqueeze(0)]
        return spikes

    def _initial_membrane(self, x: Tensor, shape: torch.Size) -> Tensor:
        stored = None if self.policy is None else self.policy.storage
        dtype = membrane_dtype(x) if stored is None else stored
        if not self.carries:
            return torch.full(shape, self.rest, dtype=dtype, device=x.device)
        self._refuse_recomputation()
        if not isinstance(self.v, Tensor):
            return torch.full(shape, self.v, dtype=dtype, device=x.device)
        if self.v.shape != shape:
            raise ValueError(
                f"{type(self).__name__} carries a membrane of shape {tuple(self.v.shape)} from its last call, but one "
                f"time step of this input has shape {tuple(shape)}. Call reset_net(net) first, or keep the batch size "
                "(drop_last=True in the DataLoader)."
            )
        return _for_autograd(self.v).to(device=x.device, dtype=dtype)

    def _refuse_recomputation(self) -> None:
        # A forward inside a running backward is activation checkpointing at work. No public call tells so.
        if self._recomputing or torch.compiler.is_compiling() or torch._C._current_graph_task_id() == -1:
            return
        raise RuntimeError(
            f"{type(self).__name__} carries its membrane, and activation checkpointing is about to advance it a second "
            "time. Use torch.utils.checkpoint.checkpoint(..., use_reentrant=False, "
            "context_fn=lightning_snnprec.neurons.checkpoint_contexts(net)), or step_mode='m' with stateful=False."
        )

    @property
    def rest(self) -> float:
        """The membrane potential at rest: `v_reset`, or 0 with soft reset."""
        return 0.0 if self.v_reset is None else self.v_reset

    @property
    def carries(self) -> bool:
        """Whether a forward starts from the membrane that the last one left."""
        return self.stateful or self.step_mode == "s"

    @property
    def v_seq(self) -> Tensor | None:
        """Membranes after every time step [T, B, ...] if `store_v_seq`, else None.

        They are those of the last forward, or with `step_mode="s"` of all calls since `reset()` or `begin_batch()`.
        """
        return torch.cat(self._v_seq) if len(self._v_seq) > 1 else next(iter(self._v_seq), None)

    def reset(self) -> None:
        """Puts the membrane at rest and forgets `v_seq`; graphs that wait for their backward are not touched."""
        self.v = self.rest
        self._v_seq = []

    def detach(self) -> None:
        """Cuts the membrane and `v_seq` from the graph; keeps their values."""
        self.v, self._v_seq = self._detached()

    def _detached(self) -> tuple[Tensor | float, list[Tensor]]:
        v = _for_autograd(self.v, detach=True) if isinstance(self.v, Tensor) else self.v
        return v, [_for_autograd(v, detach=True) for v in self._v_seq]

    def begin_batch(self) -> None:
        """Readies the state for the next batch: at rest, or, with `stateful=True`, carried on without its graph."""
        if self.stateful:
            self.detach()
            self._v_seq = []
        else:
            self.reset()

    def extra_repr(self) -> str:
        """The parameters, for `repr`."""
        shown = (
            f"v_threshold={self.v_threshold}, v_reset={self.v_reset}, detach_reset={self.detach_reset}, "
            f"step_mode={self.step_mode!r}, store_v_seq={self.store_v_seq}, stateful={self.stateful}"
        )
        return shown if self.policy is None else f"{shown}, policy={self.policy}"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> BaseNode:
        # The state follows the module's device but never its dtype.
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.v = self.rest if (v := _moved(self.v, fn)) is None else v
        self._v_seq = [moved for v in self._v_seq if isinstance(moved := _moved(v, fn), Tensor)]
        return self

    def __getstate__(self) -> dict[str, Any]:
        # deepcopy and pickle take leaf tensors only.
        state = self.__dict__.copy()
        state["v"], state["_v_seq"] = self._detached()
        return state


def _for_autograd(v: Tensor, *, detach: bool = False) -> Tensor:
    """A membrane that autograd may use here: one written under inference mode is copied outside of it."""
    # A compiled graph cannot ask; there, `begin_batch` and `detach` have done it before.
    if not torch.compiler.is_compiling() and v.is_inference() and not torch.is_inference_mode_enabled():
        return v.clone()
    return v.detach() if detach else v


def _moved(v: Tensor | float, fn: Callable[[Tensor], Tensor]) -> Tensor | float | None:
    """`v` on the device to which `fn` moves tensors; None if its values cannot go there or come from there."""
    if not isinstance(v, Tensor):
        return v
    device = fn(torch.empty(0, dtype=v.dtype, device=v.device)).device
    if device == v.device:
        return v
    return None if "meta" in (device.type, v.device.type) else v.to(device)
