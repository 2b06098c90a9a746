"""Functional neurons: the state goes in and comes out explicitly, and nothing is kept between calls.

The equations, the legend of shapes and the rules of dtypes are those of `lightning_snnprec.neurons.dynamics`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_snnprec.neurons.dynamics import (
    Step,
    SurrogateFunction,
    check_input,
    firing,
    integrate,
    leak,
    leak_learnable,
    membrane_dtype,
    run_sequence,
    run_step,
)
from lightning_snnprec.neurons.surrogate import Sigmoid


def if_step(
    x_BN: Tensor,
    v_BN: Tensor | float,
    v_threshold: float = 1.0,
    v_reset: float | None = 0.0,
    surrogate_function: SurrogateFunction | None = None,
    detach_reset: bool = False,
) -> tuple[Tensor, Tensor]:
    """One time step of integrate-and-fire neurons.

    Args:
        x_BN: input current, any shape and real dtype.
        v_BN: membrane before the step, of the same shape, FP32 or FP64 (lower dtypes become FP32): the arithmetic
            is done in its dtype. A number fills a membrane of FP32, or of FP64 for FP64 input.
        v_threshold: membrane potential at which a neuron fires.
        v_reset: membrane potential after a spike (hard reset); None subtracts `v_threshold` instead (soft reset).
        surrogate_function: maps h - v_threshold to spikes and gives their gradient; None is `Sigmoid()`.
        detach_reset: no gradient through the spikes in the reset.

    Returns:
        Spikes [B, N] in the input's dtype, and the membrane after the step [B, N].

    Raises:
        ValueError: a bad argument, a complex input, or a membrane of another shape than the input.
    """
    return _one(_if(v_threshold, v_reset, surrogate_function, detach_reset), x_BN, v_BN)


def if_multi_step(
    x_TBN: Tensor,
    v_BN: Tensor | float,
    v_threshold: float = 1.0,
    v_reset: float | None = 0.0,
    surrogate_function: SurrogateFunction | None = None,
    detach_reset: bool = False,
    store_v_seq: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """T time steps of integrate-and-fire neurons.

    Args:
        x_TBN: input currents [T, B, N...], real dtype, at least two dimensions; B or N may be 0, T may not.
        v_BN: membrane before the first step [B, N...], or a number, as in `if_step`.
        v_threshold: as in `if_step`, like all that follow.
        v_reset: hard reset to this potential; None for soft reset.
        surrogate_function: None is `Sigmoid()`.
        detach_reset: no gradient through the spikes in the reset.
        store_v_seq: also return the membrane after every step.

    Returns:
        Spikes [T, B, N...] in the input's dtype, the last membrane [B, N...], and all membranes [T, B, N...] or None.

    Raises:
        ValueError: as `if_step`, and an input without time steps or of the wrong rank.
    """
    return _many(_if(v_threshold, v_reset, surrogate_function, detach_reset), x_TBN, v_BN, store_v_seq)


def lif_step(
    x_BN: Tensor,
    v_BN: Tensor | float,
    tau: float = 2.0,
    decay_input: bool = True,
    v_threshold: float = 1.0,
    v_reset: float | None = 0.0,
    surrogate_function: SurrogateFunction | None = None,
    detach_reset: bool = False,
) -> tuple[Tensor, Tensor]:
    """One time step of leaky integrate-and-fire neurons; arguments, results and errors as `if_step`, and two more.

    Args:
        x_BN: input current, any shape and real dtype.
        v_BN: membrane before the step, of the same shape, or a number.
        tau: membrane time constant in time steps, over 1.
        decay_input: whether the input is divided by tau too.
        v_threshold: as in `if_step`, like all that follow.
        v_reset: hard reset to this potential; None for soft reset.
        surrogate_function: None is `Sigmoid()`.
        detach_reset: no gradient through the spikes in the reset.
    """
    return _one(_lif(tau, decay_input, v_threshold, v_reset, surrogate_function, detach_reset), x_BN, v_BN)


def lif_multi_step(
    x_TBN: Tensor,
    v_BN: Tensor | float,
    tau: float = 2.0,
    decay_input: bool = True,
    v_threshold: float = 1.0,
    v_reset: float | None = 0.0,
    surrogate_function: SurrogateFunction | None = None,
    detach_reset: bool = False,
    store_v_seq: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """T time steps of leaky integrate-and-fire neurons; results and errors as `if_multi_step`.

    Args:
        x_TBN: input currents [T, B, N...].
        v_BN: membrane before the first step [B, N...], or a number.
        tau: membrane time constant in time steps, over 1.
        decay_input: whether the input is divided by tau too.
        v_threshold: as in `if_step`, like all that follow.
        v_reset: hard reset to this potential; None for soft reset.
        surrogate_function: None is `Sigmoid()`.
        detach_reset: no gradient through the spikes in the reset.
        store_v_seq: also return the membrane after every step.
    """
    step = _lif(tau, decay_input, v_threshold, v_reset, surrogate_function, detach_reset)
    return _many(step, x_TBN, v_BN, store_v_seq)


def plif_step(
    x_BN: Tensor,
    v_BN: Tensor | float,
    w: Tensor,
    decay_input: bool = True,
    v_threshold: float = 1.0,
    v_reset: float | None = 0.0,
    surrogate_function: SurrogateFunction | None = None,
    detach_reset: bool = False,
) -> tuple[Tensor, Tensor]:
    """One time step of LIF neurons with 1 / tau = sigmoid(w); results and errors as `if_step`.

    Args:
        x_BN: input current, any shape and real dtype.
        v_BN: membrane before the step, of the same shape, or a number.
        w: floating tensor that broadcasts to [B, N], usually with 0 dimensions.
        decay_input: whether the input is divided by tau too.
        v_threshold: as in `if_step`, like all that follow.
        v_reset: hard reset to this potential; None for soft reset.
        surrogate_function: None is `Sigmoid()`.
        detach_reset: no gradient through the spikes in the reset.
    """
    return _one(_plif(w, decay_input, v_threshold, v_reset, surrogate_function, detach_reset), x_BN, v_BN)


def plif_multi_step(
    x_TBN: Tensor,
    v_BN: Tensor | float,
    w: Tensor,
    decay_input: bool = True,
    v_threshold: float = 1.0,
    v_reset: float | None = 0.0,
    surrogate_function: SurrogateFunction | None = None,
    detach_reset: bool = False,
    store_v_seq: bool = False,
) -> tuple[Tensor, Tensor, Tensor | None]:
    """T time steps of LIF neurons with 1 / tau = sigmoid(w); results and errors as `if_multi_step`.

    Args:
        x_TBN: input currents [T, B, N...].
        v_BN: membrane before the first step [B, N...], or a number.
        w: floating tensor that broadcasts to [B, N...], usually with 0 dimensions.
        decay_input: whether the input is divided by tau too.
        v_threshold: as in `if_step`, like all that follow.
        v_reset: hard reset to this potential; None for soft reset.
        surrogate_function: None is `Sigmoid()`.
        detach_reset: no gradient through the spikes in the reset.
        store_v_seq: also return the membrane after every step.
    """
    step = _plif(w, decay_input, v_threshold, v_reset, surrogate_function, detach_reset)
    return _many(step, x_TBN, v_BN, store_v_seq)


def _if(v_threshold: float, v_reset: float | None, surrogate: SurrogateFunction | None, detach_reset: bool) -> Step:
    return integrate(firing(v_threshold, v_reset, surrogate or Sigmoid(), detach_reset))


def _lif(
    tau: float,
    decay_input: bool,
    v_threshold: float,
    v_reset: float | None,
    surrogate: SurrogateFunction | None,
    detach_reset: bool,
) -> Step:
    fire = firing(v_threshold, v_reset, surrogate or Sigmoid(), detach_reset)
    return leak(tau, decay_input, v_reset or 0.0, fire)


def _plif(
    w: Tensor,
    decay_input: bool,
    v_threshold: float,
    v_reset: float | None,
    surrogate: SurrogateFunction | None,
    detach_reset: bool,
) -> Step:
    fire = firing(v_threshold, v_reset, surrogate or Sigmoid(), detach_reset)
    return leak_learnable(w, decay_input, v_reset or 0.0, fire)


def _one(step: Step, x: Tensor, v: Tensor | float) -> tuple[Tensor, Tensor]:
    check_input(x, sequence=False)
    return run_step(step, x, _membrane(v, x, x.shape))


def _many(step: Step, x_TBN: Tensor, v: Tensor | float, store_v_seq: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    check_input(x_TBN, sequence=True)
    return run_sequence(step, x_TBN, _membrane(v, x_TBN, x_TBN.shape[1:]), store_v_seq)


def _membrane(v: Tensor | float, x: Tensor, shape: torch.Size) -> Tensor:
    """The membrane before the first step as an FP32 or FP64 tensor."""
    if not isinstance(v, Tensor):
        return torch.full(shape, float(v), dtype=membrane_dtype(x), device=x.device)
    if v.shape != shape:
        raise ValueError(
            f"the membrane has shape {tuple(v.shape)}, but one time step of this input has shape {tuple(shape)}."
        )
    return v.to(membrane_dtype(v))
