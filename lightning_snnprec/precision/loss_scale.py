"""Settings of dynamic loss scaling, and the GradScaler that tells which optimizer it skipped."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from typing_extensions import override


@dataclass(frozen=True)
class LossScale:
    """Settings of dynamic loss scaling, in `torch.amp.GradScaler`'s terms.

    Args:
        init: first scale.
        growth_factor: the scale is multiplied by it after `growth_interval` steps without Inf or NaN.
        backoff_factor: the scale is multiplied by it after a step that was skipped for Inf or NaN.
        growth_interval: steps without Inf or NaN before the scale grows.

    Raises:
        ValueError: a value outside its range; all faults at once.
    """

    init: float = 65536.0
    growth_factor: float = 2.0
    backoff_factor: float = 0.5
    growth_interval: int = 2000

    def __post_init__(self) -> None:
        checks = {
            "init": (_is_number(self.init) and 2**-24 <= self.init <= 2**32, "a number from 2**-24 to 2**32"),
            "growth_factor": (
                _is_number(self.growth_factor) and 1 < self.growth_factor < math.inf,
                "a finite number above 1",
            ),
            "backoff_factor": (
                _is_number(self.backoff_factor) and 0 < self.backoff_factor < 1,
                "between 0 and 1",
            ),
            "growth_interval": (
                isinstance(self.growth_interval, int)
                and not isinstance(self.growth_interval, bool)
                and self.growth_interval >= 1,
                "a whole number of at least 1",
            ),
        }
        faults = [
            f"loss_scale.{name}={getattr(self, name)!r} must be {wanted}"
            for name, (good, wanted) in checks.items()
            if not good
        ]
        if faults:
            raise ValueError("\n".join(faults))

    @classmethod
    def from_any(cls, value: LossScale | Mapping[str, Any]) -> LossScale:
        """Makes settings from a mapping of some of the fields; the rest keep their defaults.

        Raises:
            ValueError: not a mapping, an unknown field, or a value outside its range.
        """
        if isinstance(value, cls):
            return value
        names = [f.name for f in dataclasses.fields(cls)]
        if not isinstance(value, Mapping):
            raise ValueError(f"loss_scale={value!r} must be a mapping with some of {', '.join(names)}")
        unknown = [str(name) for name in value if name not in names]
        if unknown:
            near = difflib.get_close_matches(unknown[0], names, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]!r}?" if near else f"its fields are {', '.join(names)}"
            raise ValueError(f"loss_scale has no field {', '.join(map(repr, unknown))}; {hint}")
        return cls(**{str(name): item for name, item in value.items()})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


class LossScaler(torch.amp.GradScaler):
    """`torch.amp.GradScaler` that also says whether an optimizer's gradients held Inf or NaN.

    `GradScaler.step` gives no word on whether it stepped, so whoever counts skipped steps or holds a learning-rate
    schedule has to ask for the flag that the scaler itself decides by.

    Args:
        settings: of the scale.
        device: where gradients live.
        hidden: tells by a value above 0 that Inf or NaN was met that gradients no longer show, since an FP8 cast
            saturated it; the step is then skipped like any other.
    """

    def __init__(
        self, settings: LossScale, device: torch.device | str, hidden: Callable[[], torch.Tensor] | None = None
    ) -> None:
        super().__init__(
            device=torch.device(device).type,
            init_scale=float(settings.init),
            growth_factor=float(settings.growth_factor),
            backoff_factor=float(settings.backoff_factor),
            growth_interval=settings.growth_interval,
        )
        self._hidden = hidden
        self._met: torch.Tensor | None = None
        self._earlier: list[torch.Tensor] = []

    @override
    def unscale_(self, optimizer: torch.optim.Optimizer) -> None:
        """Divides gradients by the scale, and lets hidden Inf and NaN count as found."""
        super().unscale_(optimizer)
        if self._hidden is not None:
            newest = self._hidden()
            self._met = newest if self._met is None else torch.maximum(self._met, newest)
            for flag in self._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values():
                flag.add_(self._met.to(flag.device))

    @override
    def update(self, new_scale: float | torch.Tensor | None = None) -> None:
        """Updates the scale, earlier steps of reopened optimizers included, and forgets what was met."""
        flags = [
            flag for state in self._per_optimizer_states.values() for flag in state["found_inf_per_device"].values()
        ]
        for earlier in self._earlier:
            flags[0].add_(earlier.to(flags[0].device))
        super().update(new_scale)
        self._met = None
        self._earlier.clear()

    def reopen(self, optimizer: torch.optim.Optimizer) -> None:
        """Lets an optimizer that stepped be unscaled and stepped again before the next `update`."""
        state = self._per_optimizer_states.pop(id(optimizer))
        self._earlier += list(state["found_inf_per_device"].values())

    def found_inf(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether `unscale_` (since the last `update`) met an Inf or NaN in this optimizer's gradients.

        Reads one number from the device, as `GradScaler.step` itself does.
        """
        flags = self._per_optimizer_states[id(optimizer)]["found_inf_per_device"]
        return any(bool(flag.item()) for flag in flags.values())

    def has_unscaled(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether this optimizer's gradients were unscaled, and possibly used, since the last `update`."""
        return bool(self._per_optimizer_states[id(optimizer)]["found_inf_per_device"])

    def restore(self, state: dict[str, Any]) -> None:
        """Puts back the scale and the growth tracker that `state_dict` saved; the settings stay those of this run.

        Args:
            state: of this scaler, or of any `torch.amp.GradScaler`.

        Raises:
            ValueError: not such a state.
        """
        missing = [name for name in ("scale", "_growth_tracker") if name not in state]
        if missing:
            raise ValueError(f"not the state of a GradScaler: it lacks {', '.join(missing)}")
        kept = ("growth_factor", "backoff_factor", "growth_interval")
        mine = self.state_dict()
        self.load_state_dict({**state, **{name: mine[name] for name in kept}})

    @property
    def scale_tensor(self) -> torch.Tensor:
        """The current scale, 0-dim FP32 on the device, without waiting for it."""
        scale = self._get_scale_async()
        return torch.tensor(self._init_scale) if scale is None else scale
