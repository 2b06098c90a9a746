"""Activation checkpointing of neurons that carry their membrane."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from torch import Tensor, nn

from lightning_snnprec.neurons.base import BaseNode

Snapshot = dict[BaseNode, tuple[Tensor | float, list[Tensor]]]


def checkpoint_contexts(net: nn.Module) -> Callable[[], tuple[_Recording, _Replaying]]:
    """Makes activation checkpointing right for the neurons in `net` that carry their membrane.

    Pass the result as `context_fn` of `torch.utils.checkpoint.checkpoint(..., use_reentrant=False)`. Each
    recomputation then starts from the membrane that its forward started from, and leaves the live one alone.
    Neurons that start every forward from rest need none of this; foreign neurons are not covered.

    Args:
        net: a module that holds all the neurons of the checkpointed part; it may hold more.

    Returns:
        A function without arguments that gives a pair of context managers, for forward and for recomputation.
    """

    def contexts() -> tuple[_Recording, _Replaying]:
        nodes = [module for module in net.modules() if isinstance(module, BaseNode)]
        recording = _Recording(nodes)
        return recording, _Replaying(recording)

    return contexts


class _Recording:
    """Remembers the membranes at the start of a forward."""

    def __init__(self, nodes: list[BaseNode]) -> None:
        self.nodes = nodes
        self.start: Snapshot = {}

    def __enter__(self) -> None:
        self.start = _snapshot(self.nodes)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None


class _Replaying:
    """Puts the remembered membranes in place for the time of a recomputation; may be entered again."""

    def __init__(self, recording: _Recording) -> None:
        self.recording = recording
        self.live: Snapshot = {}

    def __enter__(self) -> None:
        self.live = _snapshot(self.recording.nodes)
        _restore(self.recording.start, recomputing=True)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _restore(self.live, recomputing=False)
        self.live = {}


def _snapshot(nodes: list[BaseNode]) -> Snapshot:
    return {node: (node.v, node._v_seq) for node in nodes}


def _restore(snapshot: Snapshot, *, recomputing: bool) -> None:
    for node, (v, v_seq) in snapshot.items():
        node.v, node._v_seq, node._recomputing = v, v_seq, recomputing
