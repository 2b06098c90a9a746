"""Delayed scaling: a tensor's scale from the amax of earlier steps, with Transformer Engine's update rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from lightning_snnprec.arguments import choice_fault, int_fault, raise_faults
from lightning_snnprec.formats.rounding import RoundingMode
from lightning_snnprec.formats.scale import Scale
from lightning_snnprec.formats.scaling import Quantized, margin_fault, quantize_tensor, scale_for
from lightning_snnprec.formats.spec import E4M3, FloatSpec

AmaxAlgo = Literal["max", "most_recent"]
HISTORY_VERSION = 1
_ENTRIES = ("history", "scale", "amax", "algo", "margin", "format", "version")


class AmaxHistory:
    """The last amax values of one tensor and the scale that follows from them.

    Row 0 collects: `record` keeps its running maximum over all calls (micro-batches, time steps). `update` ends the
    step as Transformer Engine's fused kernel does (`delayed_scaling.cu`, `kernel_bulk`): if row 0 is 0, nothing
    changes; else the rows roll (row 0's value becomes row L-1, the oldest is row 1, row 0 is zeroed) and the scale
    becomes spec.max * 2**-margin / amax, where amax is the maximum of all L values before row 0 is zeroed ("max") or
    the newest ("most_recent"). An Inf amax keeps the scale as it was (under "max" as long as it stays in the
    history); NaN is dropped by `record`, as `fmaxf` drops it. A scale over FP32 becomes the largest FP32 number.
    With L = 1 the history is 0 after every update.

    Nothing here waits for the device; the tensors are written in place and never replaced.

    Args:
        length: L, at least 1.
        algo: "max" or "most_recent".
        margin: powers of two kept free above the amax.
        spec: the payload's format.
        device: where the tensors live.

    Attributes:
        history: FP32 [L].
        scale: FP32, 0 dimensions, of meaning "encode"; 1 before the first update.
        amax: FP32, 0 dimensions: what the scale was made from; 0 before the first update.

    Raises:
        ValueError: a bad length, algo or margin.
    """

    def __init__(
        self,
        length: int = 1024,
        algo: AmaxAlgo = "max",
        margin: int = 0,
        spec: FloatSpec = E4M3,
        device: torch.device | str | None = None,
    ) -> None:
        raise_faults(
            "AmaxHistory",
            [
                int_fault("length", length, minimum=1),
                choice_fault("algo", algo, get_args(AmaxAlgo)),
                margin_fault(margin),
            ],
        )
        self.algo: AmaxAlgo = algo
        self.margin = margin
        self.spec = spec
        self.history = torch.zeros(length, device=device)
        self.scale = torch.ones((), device=device)
        self.amax = torch.zeros((), device=device)

    @property
    def length(self) -> int:
        """L, the number of rows."""
        return self.history.numel()

    @torch.no_grad()
    def record(self, amax: Tensor | float) -> None:
        """Raises row 0 to `amax` (one number; a tensor spares a copy to the device) if larger; NaN is dropped."""
        value = torch.as_tensor(amax, dtype=torch.float32, device=self.history.device).reshape(())
        self.history[0].copy_(torch.fmax(self.history[0], value))

    @torch.no_grad()
    def update(self) -> None:
        """Rolls the history and sets the scale for the next step, if anything but 0 was recorded since the last."""
        newest = self.history[0].clone()
        seen = newest != 0
        rolled = torch.roll(self.history, -1)
        amax = rolled.nan_to_num(nan=0.0, posinf=torch.inf).amax() if self.algo == "max" else newest
        rolled[0].zero_()
        usable = seen & amax.isfinite() & (amax > 0)
        scale = scale_for(amax, self.spec, self.margin, validate=False)
        self.scale.copy_(torch.where(usable, scale, self.scale))
        self.amax.copy_(torch.where(usable, amax, self.amax))
        self.history.copy_(torch.where(seen, rolled, self.history))

    def state(self) -> dict[str, Any]:
        """Returns a copy as tensors and plain values, which `torch.load(weights_only=True)` reads."""
        return {
            "history": self.history.clone(),
            "scale": self.scale.clone(),
            "amax": self.amax.clone(),
            "algo": self.algo,
            "margin": self.margin,
            "format": self.spec.name,
            "version": HISTORY_VERSION,
        }

    @torch.no_grad()
    def load_state(self, state: Mapping[str, Any]) -> None:
        """Takes over the numbers of `state`; length, algo, margin and format stay this object's own.

        If the length differs, row 0 and the newest rows are kept: older ones are cut, missing ones are 0. The scale
        is taken as saved; if it was made for another format or margin, it is made anew from the saved amax.

        Raises:
            ValueError: another version, or missing or unknown entries.
        """
        if state.get("version") != HISTORY_VERSION or set(state) != set(_ENTRIES):
            raise ValueError(
                f"AmaxHistory: needs the entries {list(_ENTRIES)} of version {HISTORY_VERSION}; "
                f"found {sorted(state)} of version {state.get('version')!r}."
            )
        saved = state["history"].to(self.history)
        kept = min(saved.numel(), self.length) - 1
        self.history.zero_()
        self.history[0].copy_(saved[0])
        self.history[self.length - kept :].copy_(saved[saved.numel() - kept :])
        self.amax.copy_(state["amax"])
        self.scale.copy_(state["scale"])
        if (state["format"], state["margin"]) != (self.spec.name, self.margin):
            self.scale.copy_(scale_for(self.amax, self.spec, self.margin, validate=False))


def quantize_delayed(
    x: Tensor, history: AmaxHistory, mode: RoundingMode = "nearest", bits: Tensor | None = None
) -> Quantized:
    """Quantizes `x` with the scale of its history, which it only reads; a history that lags behind x saturates.

    Unlike an engine, which gives a tensor without history its own amax, this refuses one; it waits for the device.

    Args:
        x: floating point tensor of any shape; it is taken to FP32 first.
        history: its history; x's own amax is not recorded.
        mode: rounding, see `round_to`.
        bits: random bits for stochastic rounding, see `round_to`.

    Returns:
        Payload, scale, mask of saturated elements, and restored values.

    Raises:
        ValueError: x is not all zero, but the history has seen nothing but zeros.
    """
    if bool((history.amax == 0) & (x != 0).any()):
        raise ValueError(
            "quantize_delayed: the history's amax is 0 but the tensor is not all zero, so there is no scale for it. "
            "Record an amax and update first, or use `quantize_current`."
        )
    scale = Scale(history.scale.clone(), None, None, f"delayed_{history.algo}", history.spec.name)
    return quantize_tensor(x, history.spec, scale, mode, bits)
