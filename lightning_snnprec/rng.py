"""Random generators whose state travels with checkpoints, copies and pickles."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class SavedGenerator:
    """A `torch.Generator` that can be saved, copied, pickled and moved to another device.

    Args:
        seed: first seed.
        device: where its numbers are drawn.
    """

    def __init__(self, seed: int, device: torch.device | str = "cpu") -> None:
        self._seed = seed
        self.generator = torch.Generator(device)
        self.generator.manual_seed(seed)

    def state(self) -> Tensor:
        """The generator's state, uint8, on the CPU."""
        return self.generator.get_state()

    def load_state(self, state: Tensor) -> None:
        """Puts a state of the same kind of device back."""
        self.generator.set_state(state.cpu())

    def to(self, device: torch.device | str) -> None:
        """Moves to a device; on another kind of device it starts at its first seed, since states do not carry over."""
        if torch.device(device).type != self.generator.device.type:
            self.generator = torch.Generator(device)
            self.generator.manual_seed(self._seed)

    def __getstate__(self) -> dict[str, Any]:
        return {"seed": self._seed, "device": str(self.generator.device), "state": self.state()}

    def __setstate__(self, saved: dict[str, Any]) -> None:
        self.__init__(saved["seed"], saved["device"])  # type: ignore[misc]
        self.load_state(saved["state"])
