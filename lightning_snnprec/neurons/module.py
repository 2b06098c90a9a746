"""Spiking neurons as modules: integrate-and-fire, leaky, and leaky with a learnable time constant."""

from __future__ import annotations

import math

import torch
from torch import nn

from lightning_snnprec.arguments import bool_fault, raise_faults
from lightning_snnprec.neurons.base import BaseNode
from lightning_snnprec.neurons.dynamics import Step, SurrogateFunction, integrate, leak, leak_learnable
from lightning_snnprec.neurons.params import StepMode, tau_fault

__all__ = ["BaseNode", "IFNode", "LIFNode", "ParametricLIFNode"]


class IFNode(BaseNode):
    """Integrate-and-fire neurons: h = v + x. Arguments, shapes and errors as in `BaseNode`."""

    def dynamics(self) -> Step:
        """One time step (x, v) -> (spikes, next v)."""
        return integrate(self.firing())


class LIFNode(BaseNode):
    """Leaky integrate-and-fire neurons: h = v + (x - (v - r)) / tau, or with an undecayed x; r is the rest.

    Args:
        tau: membrane time constant in time steps, over 1.
        decay_input: whether the input is divided by tau too.
        v_threshold: as in `BaseNode`, like all that follow.
        v_reset: hard reset to this potential; None for soft reset.
        surrogate_function: None is `surrogate.Sigmoid()`.
        detach_reset: no gradient through the spikes in the reset.
        step_mode: "m" or "s".
        store_v_seq: keep the membrane after every time step.
        stateful: carry the membrane over forwards and batches.

    Raises:
        ValueError: bad arguments.
    """

    def __init__(
        self,
        tau: float = 2.0,
        decay_input: bool = True,
        v_threshold: float = 1.0,
        v_reset: float | None = 0.0,
        surrogate_function: SurrogateFunction | None = None,
        detach_reset: bool = False,
        step_mode: StepMode = "m",
        store_v_seq: bool = False,
        *,
        stateful: bool = False,
    ) -> None:
        super().__init__(
            v_threshold, v_reset, surrogate_function, detach_reset, step_mode, store_v_seq, stateful=stateful
        )
        raise_faults(type(self).__name__, [tau_fault("tau", tau), bool_fault("decay_input", decay_input)])
        self.tau = float(tau)
        self.decay_input = decay_input

    def dynamics(self) -> Step:
        """One time step (x, v) -> (spikes, next v)."""
        return leak(self.tau, self.decay_input, self.rest, self.firing())

    def extra_repr(self) -> str:
        """The parameters, for `repr`."""
        return f"tau={self.tau}, decay_input={self.decay_input}, {super().extra_repr()}"


class ParametricLIFNode(BaseNode):
    """LIF neurons with one learnable time constant a layer: 1 / tau = sigmoid(w) (arXiv 2007.05785).

    Args:
        init_tau: first value of the time constant in time steps, over 1; `w` starts at -log(init_tau - 1).
        decay_input: whether the input is divided by tau too.
        v_threshold: as in `BaseNode`, like all that follow.
        v_reset: hard reset to this potential; None for soft reset.
        surrogate_function: None is `surrogate.Sigmoid()`.
        detach_reset: no gradient through the spikes in the reset.
        step_mode: "m" or "s".
        store_v_seq: keep the membrane after every time step.
        stateful: carry the membrane over forwards and batches.

    Raises:
        ValueError: bad arguments.
    """

    def __init__(
        self,
        init_tau: float = 2.0,
        decay_input: bool = True,
        v_threshold: float = 1.0,
        v_reset: float | None = 0.0,
        surrogate_function: SurrogateFunction | None = None,
        detach_reset: bool = False,
        step_mode: StepMode = "m",
        store_v_seq: bool = False,
        *,
        stateful: bool = False,
    ) -> None:
        super().__init__(
            v_threshold, v_reset, surrogate_function, detach_reset, step_mode, store_v_seq, stateful=stateful
        )
        raise_faults(type(self).__name__, [tau_fault("init_tau", init_tau), bool_fault("decay_input", decay_input)])
        self.decay_input = decay_input
        self.w = nn.Parameter(torch.tensor(-math.log(init_tau - 1.0)))

    def dynamics(self) -> Step:
        """One time step (x, v) -> (spikes, next v)."""
        return leak_learnable(self.w, self.decay_input, self.rest, self.firing())

    def extra_repr(self) -> str:
        """The parameters, for `repr`, with the present time constant."""
        tau = "?" if self.w.is_meta else f"{1.0 / torch.sigmoid(self.w.detach().float()).item():.6g}"
        return f"tau={tau}, decay_input={self.decay_input}, {super().extra_repr()}"
