"""Combinations of neuron options, random inputs, and one training step on them; shared by the tests of neurons."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

KINDS = ("IFNode", "LIFNode", "ParametricLIFNode")
SURROGATES = ("Sigmoid", "ATan", "PiecewiseQuadratic", "PiecewiseExp", "SoftSign", "SuperSpike", "Erf")


def options(kind: str) -> Iterator[dict[str, Any]]:
    """Every combination of reset, detach_reset and decay_input, with random threshold and time constant."""
    decays = (False, True) if kind != "IFNode" else (None,)
    for v_reset, detach_reset, decay_input in itertools.product((0.0, -0.3, None), (False, True), decays):
        made: dict[str, Any] = {
            "v_threshold": 0.7 + 0.6 * torch.rand(()).item(),
            "v_reset": v_reset,
            "detach_reset": detach_reset,
        }
        if decay_input is not None:
            made["decay_input"] = decay_input
            made["init_tau" if kind == "ParametricLIFNode" else "tau"] = 1.2 + 2.0 * torch.rand(()).item()
        yield made


def current(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Random input current under which about a third of the neurons fire."""
    return (1.5 * torch.randn(shape, dtype=torch.float64) + 0.5).to(dtype)


def train(node: nn.Module, x_TBN: Tensor, v_BN: Tensor, weights: tuple[Tensor, Tensor, Tensor]) -> list[Tensor]:
    """Spikes, last membrane, all membranes, and the gradients of their weighted sum; from the membrane `v_BN`.

    The node is multi-step, carries its state and stores `v_seq`. Gradients: input, initial membrane, parameters.
    """
    x, v = x_TBN.clone().requires_grad_(), v_BN.clone().requires_grad_()
    node.v = v
    spikes = node(x)
    outputs = [spikes, node.v, node.v_seq]
    loss = sum((output * weight).sum() for output, weight in zip(outputs, weights, strict=True))
    return [o.detach() for o in outputs] + list(torch.autograd.grad(loss, [x, v, *node.parameters()]))


def train_by_steps(
    step: Callable[[Tensor], Tensor], node: nn.Module, x_TBN: Tensor, weights: tuple[Tensor, Tensor, Tensor]
) -> list[Tensor]:
    """As `train`, calling `step` once per time step, from rest."""
    x = x_TBN.clone().requires_grad_()
    steps = [(step(x_BN), node.v) for x_BN in x]
    outputs = [torch.stack([s for s, _ in steps]), steps[-1][1], torch.stack([v for _, v in steps])]
    loss = sum((output * weight).sum() for output, weight in zip(outputs, weights, strict=True))
    return [o.detach() for o in outputs] + list(torch.autograd.grad(loss, [x, *node.parameters()]))


def output_weights(T: int, B: int, N: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    """Random upstream gradients of spikes, last membrane and all membranes."""
    return (
        torch.randn(T, B, N, dtype=dtype),
        torch.randn(B, N, dtype=dtype),
        torch.randn(T, B, N, dtype=dtype),
    )
