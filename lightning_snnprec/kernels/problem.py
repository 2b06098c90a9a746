"""A neuron layer's constants as plain data, and as the numbers that go through operators and into kernels."""

from __future__ import annotations

from functools import lru_cache
from typing import Literal, NamedTuple

import torch

from lightning_snnprec.kernels.policy import DTYPES, Membrane, membrane
from lightning_snnprec.kernels.switches import HARD, HARD_TO_ZERO, SLOPE_NUMBERS, SOFT, SURROGATES

Kind = Literal["if", "lif", "plif"]


class Neuron(NamedTuple):
    """What a neuron is made with, and the policy of its membrane.

    Attributes:
        kind: "if", "lif", or "plif", whose 1 / tau is a tensor and goes beside this.
        v_threshold: membrane potential at which a neuron fires.
        v_reset: hard reset to this potential; None for soft reset.
        detach_reset: no gradient through the spikes in the reset.
        surrogate: a name in `lightning_snnprec.kernels.switches.SURROGATES`.
        alpha: its sharpness.
        tau: time constant of "lif". Kernels multiply by 1 / tau, as torch itself does on CUDA for a division by a
            number; on the CPU torch divides, which differs by one ULP where 1 / tau is not exact.
        decay_input: whether the input is divided by tau too.
        storage: dtype of the membrane between steps; None is FP32.
        forward: arithmetic of the forward pass, see `lightning_snnprec.kernels.policy`.
        backward: arithmetic of the backward pass.
    """

    kind: Kind
    v_threshold: float = 1.0
    v_reset: float | None = 0.0
    detach_reset: bool = False
    surrogate: str = "sigmoid"
    alpha: float = 4.0
    tau: float = 2.0
    decay_input: bool = True
    storage: torch.dtype | None = None
    forward: str = "fp32"
    backward: str = "fp32"


class Switches(NamedTuple):
    """What a kernel is compiled for. Integers only: operators take them as a list."""

    leaky: int
    learnable: int
    decay_input: int
    reset: int
    detach_reset: int
    surrogate: int
    storage: int
    forward: int
    backward: int

    @property
    def membrane(self) -> Membrane:
        """The dtypes of storage, forward and backward arithmetic."""
        return Membrane(DTYPES[self.storage], DTYPES[self.forward], DTYPES[self.backward])


class Numbers(NamedTuple):
    """What a kernel takes as numbers. Floats only: operators take them as a list."""

    v_threshold: float
    rest: float
    inverse_tau: float
    a: float
    b: float


def encode(neuron: Neuron) -> tuple[Switches, Numbers]:
    """Switches and numbers of a neuron.

    Raises:
        ValueError: an unknown surrogate, storage or arithmetic.
    """
    if neuron.surrogate not in SLOPE_NUMBERS:
        raise ValueError(f"surrogate={neuron.surrogate!r}: must be one of {', '.join(map(repr, SURROGATES))}.")
    dtypes = membrane(neuron.storage, neuron.forward, neuron.backward)
    reset = SOFT if neuron.v_reset is None else HARD if neuron.v_reset else HARD_TO_ZERO
    switches = Switches(
        int(neuron.kind != "if"),
        int(neuron.kind == "plif"),
        int(neuron.decay_input),
        reset,
        int(neuron.detach_reset),
        SURROGATES.index(neuron.surrogate),
        *(DTYPES.index(dtype) for dtype in dtypes),
    )
    # Floats in every case: an integer would be compiled into the kernel.
    rest, inverse_tau = float(neuron.v_reset or 0.0), 1.0 / neuron.tau if neuron.kind == "lif" else 0.0
    a, b = SLOPE_NUMBERS[neuron.surrogate](float(neuron.alpha))
    return switches, Numbers(float(neuron.v_threshold), rest, inverse_tau, a, b)


encoded = lru_cache(maxsize=4096)(encode)
"""As `encode`, remembered; not for compiled graphs, which see through no cache."""
