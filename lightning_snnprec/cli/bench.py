"""`snnprec bench`: hands over to the project's benchmarks."""

from __future__ import annotations

from collections.abc import Sequence

from lightning_snnprec import bench


def run(arguments: Sequence[str]) -> int:
    """Runs one benchmark.

    Returns:
        The benchmark's exit status.
    """
    return bench.main(list(arguments[1:]))
