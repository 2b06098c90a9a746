"""How many time steps and neurons a program handles at once.

Time steps come in segments of a power of two: a kernel is compiled once for T up to 1, 2, 4, 8 and 16 and above (and
again for a T that leaves a part of a segment), never for a T. A segment's loads are all in flight together and, in
backward, its charged membranes stay in registers, so that long segments leave room for few neurons per thread.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch

from lightning_snnprec.kernels.policy import CHECKPOINT_EVERY
from lightning_snnprec.kernels.switches import DIFFERENCES

WARPS = 4
_LANES = 32 * WARPS
_FORWARD_SEGMENT = 8
_DIFFERENCES_SEGMENT = 8
_WIDEST_LOAD = 16
_REGISTERS_OF_H = 64
_PROGRAMS_PER_PROCESSOR = 4


class Tile(NamedTuple):
    """Time steps of a segment, and neurons of a program."""

    segment: int
    block: int


def forward_tile(time_steps: int, itemsize: int, neurons: int, align: int, processors: int) -> Tile:
    """The tile of the forward kernel.

    Args:
        time_steps: T.
        itemsize: bytes of an input element.
        neurons: N, neurons of one time step.
        align: largest power of two, up to 16, that divides N and all distances between time steps.
        processors: multiprocessors of the device.
    """
    segment = _segment(time_steps, _FORWARD_SEGMENT)
    return Tile(segment, _LANES * _elements(_WIDEST_LOAD // itemsize, neurons, align, processors))


def backward_tile(time_steps: int, itemsize: int, kept: int, neurons: int, align: int, processors: int) -> Tile:
    """The tile of the backward kernel; arguments as `forward_tile`, and what forward kept."""
    segment = _segment(time_steps, _DIFFERENCES_SEGMENT if kept == DIFFERENCES else CHECKPOINT_EVERY)
    most = min(_WIDEST_LOAD // itemsize, _REGISTERS_OF_H // segment)
    return Tile(segment, _LANES * _elements(most, neurons, align, processors))


def alignment(*distances: int) -> int:
    """Largest power of two, up to 16, that divides all `distances`; at least one of them is not 0."""
    together = 16
    for distance in distances:
        together |= distance
    return together & -together


@cache
def processors(device: torch.device) -> int:
    """Multiprocessors of a CUDA device; 1 elsewhere."""
    return int(torch.cuda.get_device_properties(device).multi_processor_count) if device.type == "cuda" else 1


def _segment(time_steps: int, longest: int) -> int:
    segment = 1
    while segment < time_steps and segment < longest:
        segment *= 2
    return segment


def _elements(most: int, neurons: int, align: int, processors: int) -> int:
    # Not over the alignment, so that every memory access of a kernel has the same layout and none goes through
    # shared memory; fewer where there would be too few programs to fill the device.
    elements = min(most, 8, align)
    while elements > 1 and neurons < elements * _LANES * _PROGRAMS_PER_PROCESSOR * processors:
        elements //= 2
    return elements
