"""From pixel intensities to a sequence over time: direct, Poisson and latency coding.

Shapes: `x_B` is `[B, ...]` with values in [0, 1]; the result is `[T, B, ...]` float32, on the input's device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from lightning_snnprec.arguments import choice_fault, int_fault, raise_faults

Coding: TypeAlias = Literal["direct", "poisson", "latency"]
CODINGS: tuple[Coding, ...] = get_args(Coding)


def direct_coding(x_B: Tensor, time_steps: int, *, validate: bool = True) -> Tensor:
    """Presents the same intensities at every time step; the network's first layer does the coding.

    Direct (constant current) coding, as in Rueckauer et al., "Conversion of continuous-valued deep networks
    to efficient event-driven networks for image classification" (2017).

    Args:
        x_B: intensities `[B, ...]` in [0, 1], any real dtype; B may be 0.
        time_steps: T, at least 1.
        validate: check the values, which makes the host wait for the device; False skips it.

    Returns:
        `[T, B, ...]` float32: a view without a copy per step (stride 0 over time), so don't write into it.

    Raises:
        ValueError: T below 1, a scalar input, or (with `validate`) values outside [0, 1] or NaN.
    """
    _check("direct_coding", x_B, time_steps, validate=validate)
    return x_B.float().expand(time_steps, *x_B.shape)


def poisson_coding(x_B: Tensor, time_steps: int, *, validate: bool = True) -> Tensor:
    """Draws a spike with probability x at every time step, independently (rate coding).

    A Bernoulli draw per step, the usual discrete stand-in for a Poisson process of that rate. The draws come
    from torch's global generator of the input's device, whose state an exact resume restores. x = 0 never
    fires, x = 1 fires at every step.

    Args:
        x_B: intensities `[B, ...]` in [0, 1], any real dtype; B may be 0.
        time_steps: T, at least 1.
        validate: check the values, which makes the host wait for the device; False skips it.

    Returns:
        `[T, B, ...]` float32 of 0 and 1.

    Raises:
        ValueError: T below 1, a scalar input, or (with `validate`) values outside [0, 1] or NaN.
    """
    _check("poisson_coding", x_B, time_steps, validate=validate)
    uniform_TB = torch.rand(time_steps, *x_B.shape, device=x_B.device)
    return (uniform_TB < x_B).float()


def latency_coding(x_B: Tensor, time_steps: int, *, validate: bool = True) -> Tensor:
    """Gives every positive intensity one spike, the sooner the larger: t = round((1 - x) * (T - 1)).

    Time-to-first-spike coding with a linear map, as in Rueckauer and Liu, "Conversion of analog to spiking
    neural networks using sparse temporal coding" (2018). Halves round to even. x = 0 never fires; with T = 1
    every positive intensity fires at once.

    Args:
        x_B: intensities `[B, ...]` in [0, 1], any real dtype; B may be 0.
        time_steps: T, at least 1.
        validate: check the values, which makes the host wait for the device; False skips it.

    Returns:
        `[T, B, ...]` float32 of 0 and 1, at most one 1 over time for each input value.

    Raises:
        ValueError: T below 1, a scalar input, or (with `validate`) values outside [0, 1] or NaN.
    """
    _check("latency_coding", x_B, time_steps, validate=validate)
    x_B = x_B.float()
    fires_at_B = ((1 - x_B) * (time_steps - 1)).round()
    t_T = torch.arange(time_steps, device=x_B.device).view(-1, *[1] * x_B.dim())
    return ((t_T == fires_at_B) & (x_B > 0)).float()


_CODERS: dict[Coding, Callable[..., Tensor]] = {
    "direct": direct_coding,
    "poisson": poisson_coding,
    "latency": latency_coding,
}


def encode(x_B: Tensor, time_steps: int, coding: Coding, *, validate: bool = True) -> Tensor:
    """Codes `x_B` over time by the coding's name: `direct_coding`, `poisson_coding` or `latency_coding`.

    Args:
        x_B: intensities `[B, ...]` in [0, 1], any real dtype; B may be 0.
        time_steps: T, at least 1.
        coding: "direct", "poisson" or "latency".
        validate: check the values, which makes the host wait for the device; False skips it.

    Returns:
        `[T, B, ...]` float32.

    Raises:
        ValueError: an unknown coding, and whatever that coding refuses.
    """
    raise_faults("encode", [choice_fault("coding", coding, CODINGS)])
    return _CODERS[coding](x_B, time_steps, validate=validate)


def _check(owner: str, x_B: Tensor, time_steps: int, *, validate: bool) -> None:
    raise_faults(owner, [int_fault("time_steps", time_steps, 1)])
    if x_B.dim() == 0 or x_B.is_complex():
        raise ValueError(f"{owner}: needs real intensities [B, ...], got {x_B.dtype} of shape {tuple(x_B.shape)}.")
    if validate:
        check_intensities(owner, x_B)


def check_intensities(owner: str, x: Tensor) -> None:
    """Raises `ValueError`, named after `owner`, when `x` holds NaN, Inf or a value outside [0, 1].

    An empty tensor passes. Reads one number back from the device, so call it once per data set and not once
    per batch.
    """
    if bool(((x >= 0) & (x <= 1)).all()):
        return
    if not bool(torch.isfinite(x).all()):
        raise ValueError(
            f"{owner}: {int((~torch.isfinite(x)).sum())} of {x.numel()} intensities are NaN or Inf; coding "
            "needs finite values in [0, 1]. Clean the data first, for example with torch.nan_to_num."
        )
    raise ValueError(
        f"{owner}: intensities must lie in [0, 1], found {x.min().item():g} to {x.max().item():g}. Scale "
        "them first: divide by the largest possible value (255 for uint8 images)."
    )
