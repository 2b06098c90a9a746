"""The neurons' equations in plain torch: what every other implementation of them has to reproduce.

One time step charges the membrane, v -> h, fires where h >= v_threshold, and resets the neurons that fired, h -> v:

    IF    h = v + x
    LIF   h = v + (x - (v - r)) / tau  with decay_input, else  h = v - (v - r) / tau + x
    PLIF  as LIF with 1 / tau = sigmoid(w), w learnable (Fang et al. 2021, arXiv 2007.05785)
    hard reset  v = s v_reset + (1 - s) h        soft reset  v = h - s v_threshold

where s are the spikes and r is v_reset, or 0 with soft reset. Legend of shapes: T time steps, B batch, N neurons (one
or more dimensions). The membrane has its own dtype, FP32 or FP64: the input is cast to it once, everything including
h - v_threshold is computed in it, and spikes are cast back to the input's dtype; bool and integer input is read as,
and gives spikes of, torch's default float dtype. Nothing is modified in place.

NaN and Inf are not hidden: a NaN membrane does not fire, stays NaN until the state is reset, and makes gradients
NaN; an input of +Inf fires, and a hard reset leaves NaN behind it, since 0 * Inf is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from lightning_snnprec.arguments import bool_fault, raise_faults
from lightning_snnprec.neurons.params import firing_faults, tau_fault

SurrogateFunction = Callable[[Tensor], Tensor]
"""From h - v_threshold to spikes, with their gradient."""

Firing = Callable[[Tensor], tuple[Tensor, Tensor]]
"""The second half of a step: from the charged membrane h to spikes and the membrane after the reset."""

Step = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""One time step: from input x and membrane v, of one shape and dtype, to spikes and the next membrane."""


def firing(
    v_threshold: float, v_reset: float | None, surrogate_function: SurrogateFunction, detach_reset: bool
) -> Firing:
    """Threshold and reset of all neurons; raises `ValueError` for bad arguments, as the makers of steps below."""
    _check(firing_faults(v_threshold, v_reset, detach_reset, surrogate_function))

    def fire(h: Tensor) -> tuple[Tensor, Tensor]:
        spikes = surrogate_function(h - v_threshold)
        fired = spikes.detach() if detach_reset else spikes
        if v_reset is None:
            return spikes, h - fired * v_threshold
        # The order of the two products fixes the order in which autograd sums their gradients.
        return spikes, fired * v_reset + (1.0 - fired) * h if v_reset else (1.0 - fired) * h

    return fire


def integrate(fire: Firing) -> Step:
    """IF: the membrane adds up its input."""
    return lambda x, v: fire(v + x)


def leak(tau: float, decay_input: bool, rest: float, fire: Firing) -> Step:
    """LIF: the membrane decays towards `rest` with the time constant `tau`, in time steps."""
    _check([tau_fault("tau", tau), bool_fault("decay_input", decay_input)])

    def step(x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        above_rest = v - rest if rest else v
        return fire(v + (x - above_rest) / tau if decay_input else v - above_rest / tau + x)

    return step


def leak_learnable(w: Tensor, decay_input: bool, rest: float, fire: Firing) -> Step:
    """PLIF: as `leak` with 1 / tau = sigmoid(w), taken in FP32 (FP64 for an FP64 `w`)."""
    _check([bool_fault("decay_input", decay_input)])
    inverse_tau = torch.sigmoid(w.to(membrane_dtype(w)))

    def step(x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        above_rest = v - rest if rest else v
        q = inverse_tau.to(v.dtype)
        return fire(v + (x - above_rest) * q if decay_input else v - above_rest * q + x)

    return step


def run_step(step: Step, x: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """One `step` of input `x` of any real dtype, on a membrane `v` of the same shape; spikes and the next membrane."""
    spikes, v = step(x.to(v.dtype), v)
    return spikes.to(floating_dtype(x)), v


def run_sequence(step: Step, x_TBN: Tensor, v: Tensor, store_v_seq: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """All T steps of `x_TBN` from a membrane `v` [B, N]; spikes [T, B, N], the last membrane, and all or None."""
    spikes, membranes = [], []
    for x_BN in x_TBN.to(v.dtype).unbind(0):
        spike, v = step(x_BN, v)
        spikes.append(spike)
        if store_v_seq:
            membranes.append(v)
    spikes_TBN = torch.stack(spikes).to(floating_dtype(x_TBN))
    return spikes_TBN, v, torch.stack(membranes) if store_v_seq else None


def floating_dtype(x: Tensor) -> torch.dtype:
    """The dtype in which `x` is read and its spikes are written: its own, or the default one if not floating."""
    return x.dtype if x.is_floating_point() else torch.get_default_dtype()


def membrane_dtype(x: Tensor) -> torch.dtype:
    """The dtype of a membrane that integrates `x` when nothing else is asked: FP32, or FP64 for FP64 input."""
    return torch.float64 if floating_dtype(x) == torch.float64 else torch.float32


def check_input(x: Tensor, *, sequence: bool) -> None:
    """Raises `ValueError` unless `x` is a real tensor and, for a `sequence`, [T, B, ...] with T >= 1."""
    if not isinstance(x, Tensor) or x.is_complex():
        found = f"a {x.dtype} tensor" if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"a neuron needs a tensor of real numbers as input; found {found}.")
    if sequence and x.ndim < 2:
        raise ValueError(
            f"a multi-step neuron needs an input of shape [T, B, ...], time first; found shape {tuple(x.shape)}. "
            "For a single time step use step_mode='s', or x.unsqueeze(0)."
        )
    if sequence and x.shape[0] == 0:
        raise ValueError(f"a multi-step neuron needs at least one time step; found T=0 in shape {tuple(x.shape)}.")


def _check(faults: Iterable[str | None]) -> None:
    # Checks of Python values would only add guards and graph breaks to a compiled graph.
    if not torch.compiler.is_compiling():
        raise_faults("neuron", faults)
