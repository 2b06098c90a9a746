"""Random neurons and inputs, shared by the tests of kernels."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import torch
from torch import Tensor

from lightning_snnprec.kernels import Neuron

KINDS = ("if", "lif", "plif")
RESETS = (0.0, -0.3, None)
STORAGES = (None, torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2)
LOW = STORAGES[2:]


def shapes() -> Iterator[Neuron]:
    """Every kind, reset, detach_reset and decay_input, with random constants."""
    for kind, v_reset, detach_reset, decay_input in itertools.product(KINDS, RESETS, (False, True), (False, True)):
        if kind != "if" or decay_input:
            yield Neuron(
                kind,
                v_threshold=random.uniform(0.7, 1.3),
                v_reset=v_reset,
                detach_reset=detach_reset,
                surrogate="piecewise_quadratic",
                alpha=random.uniform(0.5, 2.0),
                tau=random.uniform(1.2, 3.0),
                decay_input=decay_input,
            )


def policies(storage: torch.dtype) -> Iterator[dict[str, object]]:
    """Every pair of forward and backward arithmetic for a storage below FP32."""
    names = ("fp32", "bf16", "fp16", *(("fp8",) if storage.itemsize == 1 else ()))
    for forward, backward in itertools.product(names, names):
        yield {"storage": storage, "forward": forward, "backward": backward}


def current(*shape: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Tensor:
    """Random input under which about a third of the neurons fire."""
    return (1.5 * torch.randn(shape, device=device) + 0.5).to(dtype)


def inverse_tau(neuron: Neuron, device: str = "cpu") -> Tensor | None:
    """A random 1 / tau for "plif"; None for others."""
    return torch.rand((), device=device) * 0.5 + 0.3 if neuron.kind == "plif" else None
