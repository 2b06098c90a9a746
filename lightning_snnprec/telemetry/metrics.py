"""Metrics of spiking networks, on torchmetrics: counted on the device, reduced over processes."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torchmetrics import Metric
from typing_extensions import override

from lightning_snnprec.neurons import BaseNode


class FiringRates(NamedTuple):
    """Spikes per neuron and time step, in [0, 1], fp32 scalars; NaN where nothing was counted."""

    overall: Tensor
    layers: dict[str, Tensor]


class FiringRate(Metric):
    """Mean firing rate of a network's neurons, overall and per layer: spikes / (time steps * samples * neurons).

    Counting happens in forward hooks that exist only inside `with metric.watch(net):`, so the network can be
    copied and pickled at any other time. A layer is every `lightning_snnprec.neurons` neuron, under its module
    name. Nothing waits for the device before `compute`. Counts are int64, and add up over processes. A
    `torch.compile`d network runs eagerly while it is watched.

    Args:
        net: the network whose neurons are named; no reference to it is kept.

    Attributes:
        layers: the names, in the order of `net.named_modules()`; empty for a network without such neurons.
    """

    full_state_update = False
    is_differentiable = False
    higher_is_better = None

    spikes: Tensor
    outputs: Tensor

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.layers = tuple(_neurons(net))
        zeros_L = torch.zeros(len(self.layers), dtype=torch.int64)
        self.add_state("spikes", zeros_L, dist_reduce_fx="sum")
        self.add_state("outputs", zeros_L.clone(), dist_reduce_fx="sum")

    @contextmanager
    def watch(self, net: nn.Module) -> Iterator[None]:
        """Counts the spikes of every forward of `net` in this context, and updates the metric at its end.

        What ran before an exception is not counted.

        Raises:
            ValueError: the names of `net`'s neurons are not those that the metric was made with.
        """
        neurons = _neurons(net)
        if tuple(neurons) != self.layers:
            raise ValueError(
                f"FiringRate: made for neurons {list(self.layers)}, but this network has {list(neurons)}. Make "
                "a FiringRate of the network that is watched."
            )
        counts: dict[str, list[Tensor]] = {}
        hooks = [
            neuron.register_forward_hook(functools.partial(_count, counts, name)) for name, neuron in neurons.items()
        ]
        try:
            # A compiled network doesn't see hooks that came after its compilation.
            with torch.compiler.set_stance("force_eager"):
                yield
        finally:
            for hook in hooks:
                hook.remove()
        self._add(counts)

    @override
    def update(self, spikes_L: Tensor, outputs_L: Tensor) -> None:
        """Adds counts of each layer, `[L]` int64 in the order of `layers`; `watch` calls it.

        Args:
            spikes_L: outputs that were not 0.
            outputs_L: outputs in all: time steps * samples * neurons.
        """
        # Out of place: the state may be an inference tensor, which must not be written to outside inference mode.
        self.spikes = self.spikes + spikes_L
        self.outputs = self.outputs + outputs_L

    @override
    def compute(self) -> FiringRates:
        """The rates since the last reset, over all processes."""
        rates_L = self.spikes / self.outputs
        overall = self.spikes.sum() / self.outputs.sum()
        return FiringRates(overall, dict(zip(self.layers, rates_L.unbind(), strict=True)))

    def _add(self, counts: dict[str, list[Tensor]]) -> None:
        none = self.spikes.new_zeros(2)
        per_layer = [sum(counts.get(name, []), none) for name in self.layers]
        if per_layer:
            self.update(*torch.stack(per_layer, dim=1).to(self.spikes.device).unbind())


def _neurons(net: nn.Module) -> dict[str, BaseNode]:
    return {
        name.replace("_orig_mod.", ""): module  # torch.compile's wrapper puts that into every name
        for name, module in net.named_modules()
        if isinstance(module, BaseNode)
    }


def _count(counts: dict[str, list[Tensor]], name: str, neuron: nn.Module, inputs: object, spikes: Tensor) -> None:
    with torch.no_grad():
        fired = torch.count_nonzero(spikes)
        # A fill kernel: torch.tensor(n, device=...) would make the host wait for the copy.
        outputs = torch.full_like(fired, spikes.numel())
        counts.setdefault(name, []).append(torch.stack([fired, outputs]))
