"""The fully connected spiking network: Linear, neuron, ..., and a Linear that reads out the mean over time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from typing_extensions import Unpack, override

from lightning_snnprec.arguments import bool_fault, int_fault, number_fault, raise_faults
from lightning_snnprec.models.dropout import TimeSharedDropout
from lightning_snnprec.models.neuron import NeuronFactory, NeuronOptions, neuron_factory


class FCSNN(nn.Module):
    """A fully connected spiking classifier over T time steps.

    `body` holds, for each hidden width, `fc<i>` (torch.nn.Linear), `spike<i>` (the neuron) and, with dropout,
    `dropout<i>`; `head` is the Linear that reads out. Names and shapes in `state_dict()` don't depend on dropout or
    the neuron (a "plif" adds its `w`).

    At PyTorch's own initialisation spikes die out with depth: beyond the second hidden layer nothing fires, and
    nothing is learned. `init_gain` scales the initial weights of the hidden layers: with 4 the first two fire from
    the start, with 8 all of twenty (LIF, `tau=2`, direct coding of the digits).

    Args:
        in_features: size of one sample at one time step, F.
        hidden: width of each hidden layer, at least one.
        num_classes: C, outputs of the head.
        neuron: "if", "lif", "plif", or a factory of multi-step neurons.
        dropout: probability of dropping a hidden neuron for a whole presentation, in [0, 1).
        bias: give the Linear layers, the head included, a bias.
        init_gain: factor of the hidden layers' initial weights, above 0; 1 is PyTorch's initialisation.
        **neuron_options: `tau`, `v_threshold`, `v_reset`, `surrogate`, `alpha`, ...; see
            `lightning_snnprec.models.neuron.NeuronOptions`.

    Raises:
        ValueError: bad arguments, all listed, or neuron options that don't fit.
    """

    def __init__(
        self,
        in_features: int,
        hidden: Sequence[int],
        num_classes: int,
        neuron: str | NeuronFactory = "lif",
        dropout: float = 0.0,
        *,
        bias: bool = True,
        init_gain: float = 1.0,
        **neuron_options: Unpack[NeuronOptions],
    ) -> None:
        super().__init__()
        raise_faults(
            type(self).__name__,
            [
                int_fault("in_features", in_features, 1),
                *_hidden_faults(hidden),
                int_fault("num_classes", num_classes, 1),
                number_fault("dropout", dropout, least=0, below=1),
                bool_fault("bias", bias),
                number_fault("init_gain", init_gain, above=0),
            ],
        )
        self.in_features = in_features
        self.num_classes = num_classes
        make_neuron = neuron_factory(neuron, **neuron_options)
        layers: OrderedDict[str, nn.Module] = OrderedDict()
        widths = [in_features, *hidden]
        for i, (n_in, n_out) in enumerate(pairwise(widths), start=1):
            layers[f"fc{i}"] = _scaled_linear(n_in, n_out, bias=bias, gain=init_gain)
            layers[f"spike{i}"] = make_neuron()
            if dropout > 0:
                layers[f"dropout{i}"] = TimeSharedDropout(dropout)
        self.body = nn.Sequential(layers)
        self.head = nn.Linear(widths[-1], num_classes, bias=bias)

    @override
    def forward(self, x: Tensor) -> Tensor:
        """Class scores of a sequence.

        Args:
            x: `[T, B, F]`, or `[T, B, ...]` whose trailing dimensions make F together; T at least 1, B may be 0.
                Bool and integer input is cast to the weights' dtype; so is any other, save what autocast casts.

        Returns:
            Logits `[B, C]`: the head's outputs averaged over T, summed and returned in fp32 (fp64 for an fp64
            model), whatever autocast is on.

        Raises:
            ValueError: too few dimensions, T = 0, or a sample size other than `in_features`.
        """
        logits_TBC: Tensor = self.head(self.body(self._as_sequence(x)))
        return logits_TBC.mean(0, dtype=torch.promote_types(logits_TBC.dtype, torch.float32))

    def _as_sequence(self, x: Tensor) -> Tensor:
        name, shape = type(self).__name__, tuple(x.shape)
        if x.dim() < 3:
            raise ValueError(
                f"{name}: needs a sequence [T, B, {self.in_features}], got shape {shape}. Code the batch over "
                "time first (lightning_snnprec.data.encode), or add the time dimension with x.unsqueeze(0)."
            )
        if x.shape[0] == 0:
            raise ValueError(f"{name}: got shape {shape}, T = 0: needs at least one time step.")
        x_TBF = x.flatten(2)
        if x_TBF.shape[2] != self.in_features:
            raise ValueError(
                f"{name}: in_features={self.in_features}, but a sample has {x_TBF.shape[2]} values at each time "
                f"step (shape {shape}, read as [T, B, ...])."
            )
        return self._cast(x_TBF)

    def _cast(self, x: Tensor) -> Tensor:
        # Autocast casts fp32, fp16 and bf16 on its own, and leaves fp64 and integers alone.
        if x.dtype in (torch.float32, torch.float16, torch.bfloat16) and _autocasts(x.device.type):
            return x
        return x.to(self.head.weight.dtype)


def _autocasts(device_type: str) -> bool:
    return torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type)


def _scaled_linear(n_in: int, n_out: int, *, bias: bool, gain: float) -> nn.Linear:
    layer = nn.Linear(n_in, n_out, bias=bias)
    with torch.no_grad():
        layer.weight.mul_(gain)
    return layer


def _hidden_faults(hidden: object) -> list[str | None]:
    if isinstance(hidden, str) or not isinstance(hidden, Sequence) or len(hidden) == 0:
        return [f"hidden={hidden!r}: needs the width of each hidden layer, at least one, such as (256,)."]
    return [int_fault(f"hidden[{i}]", width, 1) for i, width in enumerate(hidden)]
