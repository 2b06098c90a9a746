"""Which shapes broadcast to which."""

from __future__ import annotations

from collections.abc import Sequence


def broadcasts_to(shape: Sequence[int], target: Sequence[int]) -> bool:
    """Says whether a tensor of `shape` broadcasts to `target` without enlarging it."""
    missing = len(target) - len(shape)
    return missing >= 0 and all(size in (1, full) for size, full in zip(shape, target[missing:], strict=True))
