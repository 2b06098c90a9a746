"""How long GPU work takes, without the host: captured in a CUDA graph, replayed, timed with CUDA events."""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
from torch import Tensor

_WARM_UP = 3


def graph_time(work: Callable[[], object], repeats: int) -> float:
    """Median time of `work` in seconds.

    `work` is called a few times, then captured and replayed, so that neither Python nor the launch of its kernels is
    in the time. What it returns is kept, so that no two of its results share memory.

    Args:
        work: launches kernels on the current stream and waits for none.
        repeats: timed replays.
    """
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UP):
            work()
        stream.synchronize()
        with torch.cuda.graph(graph, stream=stream):
            kept = work()
        pairs = [(_event(), _event()) for _ in range(_WARM_UP + repeats)]
        for start, end in pairs:
            start.record()
            graph.replay()
            end.record()
        stream.synchronize()
    del kept
    return 1e-3 * statistics.median(float(start.elapsed_time(end)) for start, end in pairs[_WARM_UP:])


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def copy_bandwidth(bytes_moved: int, repeats: int) -> float:
    """Bytes per second, read and written, of copies that move `bytes_moved` in all."""
    source = torch.zeros(bytes_moved // 2, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)

    def copy() -> Tensor:
        return target.copy_(source)

    return 2 * source.numel() / graph_time(copy, repeats)
