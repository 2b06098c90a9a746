"""Neurons under a policy by autograd, in any floating dtype: an oracle that shares no code with the kernels.

Straight-through substitutions give forward the exact values of a policy, and backward the values that it is allowed
to see; autograd does the rest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lightning_snnprec.kernels import Neuron
from lightning_snnprec.kernels.policy import membrane
from lightning_snnprec.neurons import surrogate


@dataclass
class Run:
    """Results of an oracle, and which neurons are too close to a decision for another arithmetic to agree.

    Attributes:
        spikes: [T, N].
        membranes: after every step [T, N].
        close_from: first time step from which a neuron's spikes may differ [N]; T where they may not.
        clear: neurons of which FP32 arithmetic, from the same state, decides and rounds every step in the same way [N].
    """

    spikes: Tensor
    membranes: Tensor
    close_from: Tensor
    clear: Tensor


def run(
    x_TN: Tensor, v_N: Tensor | None, neuron: Neuron, q: Tensor | None = None, *, x_dtype: torch.dtype, margin: float
) -> Run:
    """All time steps of `x_TN` in its dtype.

    Args:
        x_TN: input, already rounded to `x_dtype`.
        v_N: first membrane; None is at rest.
        neuron: constants and policy.
        q: 1 / tau of "plif".
        x_dtype: the dtype in which a kernel gets the input; it decides what backward sees.
        margin: relative distance to the threshold below which a neuron counts as close.
    """
    policy = membrane(neuron.storage, neuron.forward, neuron.backward)
    narrow = policy.storage.itemsize < x_dtype.itemsize
    slope = surrogate.from_name(neuron.surrogate, neuron.alpha)
    neuron = neuron._replace(v_threshold=_single(neuron.v_threshold))
    rest = _single(neuron.v_reset or 0.0)
    unit = max(torch.finfo(dtype).eps for dtype in policy[:2])
    v = torch.full_like(x_TN[0], rest) if v_N is None else _through(v_N, rounded(v_N, policy.storage))
    seen_before = v.detach()
    inverse_tau = torch.tensor(_single(1.0 / neuron.tau), dtype=x_TN.dtype, device=x_TN.device) if q is None else q
    close_from = torch.full(v.shape, len(x_TN), device=v.device)
    inexact = a_unit_off = torch.zeros(v.shape, dtype=torch.bool, device=v.device)
    spikes, membranes = [], []
    for t, x in enumerate(x_TN):
        before = _RoundGradient.apply(v, policy.backward)
        h = _charge(neuron, x, before, inverse_tau, rest)
        charged = h.detach()
        u = charged - neuron.v_threshold
        stored = rounded(torch.where(u >= 0, u.abs(), u), policy.storage)
        if narrow:
            h = _through(h, stored + neuron.v_threshold)
            if q is not None:
                drive = h.detach() - seen_before if neuron.decay_input else -(seen_before - rest) * q.detach()
                h = h + drive / q.detach() * (q - q.detach()) - _drive_of(neuron, x, before, q, rest)
        exact = (u >= 0).to(h.dtype)
        seen_u = _through(h - neuron.v_threshold, stored if narrow else u)
        s = _through(slope(seen_u), exact)
        fired = s.detach() if neuron.detach_reset else s
        seen = _reset(neuron, h, fired, rest)
        before_rounding = _reset(neuron, rounded(charged, policy.forward), exact, rest)
        v = _through(seen, rounded(before_rounding, policy.storage))
        seen_before = rounded(_reset(neuron, rounded(h.detach(), policy.forward), exact, rest), policy.storage)
        singles = (t.detach().float() for t in (x, before, inverse_tau))
        charged_32 = _charge(neuron, *singles, rest)
        inexact = inexact | (charged_32 != charged)
        near = inexact & (u.abs() < torch.where(a_unit_off, 2 * unit, margin) * (1 + charged.abs()))
        after_32 = rounded(_reset(neuron, rounded(charged_32, policy.forward), exact.float(), rest), policy.storage)
        if policy[:2] == (torch.float32, torch.float32):
            inexact |= after_32 != v.detach()
        else:
            a_unit_off = a_unit_off | (after_32 != v.detach())
            inexact = a_unit_off
        if narrow:
            u_32 = charged_32 - neuron.v_threshold
            stored_32 = rounded(torch.where(u_32 >= 0, u_32.abs(), u_32), policy.storage)
            a_unit_off = a_unit_off | (stored_32 != stored)
        close_from = torch.where(near & (close_from > t), t, close_from)
        spikes.append(s)
        membranes.append(v)
    return Run(torch.stack(spikes), torch.stack(membranes), close_from, ~a_unit_off & (close_from == len(x_TN)))


def _single(number: float) -> float:
    """The FP32 number nearest to it: constants reach a kernel so."""
    return torch.tensor(number, dtype=torch.float32).item()


def rounded(v: Tensor, dtype: torch.dtype) -> Tensor:
    """`v` rounded to `dtype`, by way of FP32, saturating in FP8 and FP16; in its own dtype."""
    if dtype == torch.float32:
        return v
    largest = torch.finfo(dtype).max if dtype != torch.bfloat16 else float("inf")
    return v.float().clamp(-largest, largest).to(dtype).to(v.dtype)


def _charge(neuron: Neuron, x: Tensor, v: Tensor, q: Tensor, rest: float) -> Tensor:
    if neuron.kind == "if":
        return v + x
    above_rest = v - rest
    return v + (x - above_rest) * q if neuron.decay_input else v - above_rest * q + x


def _drive_of(neuron: Neuron, x: Tensor, v: Tensor, q: Tensor, rest: float) -> Tensor:
    """0 in value, and in gradient that of h by 1 / tau."""
    above_rest = (v - rest).detach()
    drive = x.detach() - above_rest if neuron.decay_input else -above_rest
    return drive * (q - q.detach())


def _reset(neuron: Neuron, h: Tensor, s: Tensor, rest: float) -> Tensor:
    if neuron.v_reset is None:
        return h - s * neuron.v_threshold
    return s * rest + (1.0 - s) * h


def _through(differentiated: Tensor, value: Tensor) -> Tensor:
    """`value`, with the gradient of `differentiated`."""
    return _Substitute.apply(differentiated, value.detach())


class _Substitute(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, differentiated: Tensor, value: Tensor) -> Tensor:
        return value.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad, None


class _RoundGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, v: Tensor, dtype: torch.dtype) -> Tensor:
        ctx.dtype = dtype
        return v.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return rounded(grad, ctx.dtype), None
