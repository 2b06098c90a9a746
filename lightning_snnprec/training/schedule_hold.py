"""Holding learning-rate schedules back on a skipped step."""

from __future__ import annotations

from typing import Any

_HELD = "held"


class ScheduleHold:
    """Keeps Lightning from stepping schedulers of interval "step" between `hold` and `release`.

    A scheduler of frequency above 1 misses the one tick that falls on a skipped step. One that follows a metric
    (`ReduceLROnPlateau`) does not count optimizer steps and is left alone.

    Lightning steps a scheduler whose configuration's interval is the one that has just ended. While held, the interval
    names none; the scheduler itself, its state and its instance attributes are never touched.
    """

    def __init__(self) -> None:
        self.configs: list[Any] = []
        self._held: list[Any] = []

    def hold(self) -> None:
        """Holds all schedulers that step with the optimizer."""
        for config in self.configs:
            if config.interval == "step" and not config.reduce_on_plateau:
                config.interval = _HELD
                self._held.append(config)

    def release(self) -> None:
        """Lets held schedulers go on."""
        for config in self._held:
            config.interval = "step"
        self._held.clear()
