"""The neuron kernels as `torch.library` operators with fake implementations and autograd, and a quick way past them.

`torch.compile(fullgraph=True)`, `torch.export`, fake tensors and CUDA graphs take
`torch.ops.lightning_snnprec.neuron_forward`. Eager calls on plain tensors go through `sequence`, an
`autograd.Function` that runs the same code without the dispatcher, whose Python entry costs more host time than the
launch itself.

On CUDA the code is Triton's, elsewhere the plain torch of `lightning_snnprec.kernels.plain`. Neither is
differentiable twice.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from functools import cache
from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lightning_snnprec.kernels import plain
from lightning_snnprec.kernels.layout import dense_steps, empty
from lightning_snnprec.kernels.policy import kept_for_backward, kept_rows
from lightning_snnprec.kernels.problem import Numbers, Switches
from lightning_snnprec.kernels.switches import DIFFERENCES, NOTHING

Outputs = tuple[Tensor, Tensor, Tensor, Tensor]
Gradients = tuple[Tensor, Tensor, Tensor]


def forward(
    x: Tensor,
    v: Tensor | None,
    inverse_tau: Tensor | None,
    switches: Switches,
    numbers: Numbers,
    spikes_dtype: torch.dtype,
    for_backward: bool,
    last_membrane: bool,
    all_membranes: bool,
) -> Outputs:
    """Spikes, last membrane, all membranes and what backward needs, by kernels on CUDA and by plain torch elsewhere."""
    run = _launch().forward if x.device.type == "cuda" else plain.forward
    return run(x, v, inverse_tau, switches, numbers, spikes_dtype, for_backward, last_membrane, all_membranes)


def backward(
    grad_spikes: Tensor | None,
    grad_v_last: Tensor | None,
    grad_v_seq: Tensor | None,
    x: Tensor | None,
    saved: Tensor,
    v: Tensor | None,
    inverse_tau: Tensor | None,
    switches: Switches,
    numbers: Numbers,
    x_dtype: torch.dtype,
    for_x: bool,
    for_v: bool,
    for_inverse_tau: bool,
) -> Gradients:
    """Gradients of input, first membrane and 1 / tau, by kernels on CUDA and by plain torch elsewhere."""
    run = _launch().backward if saved.device.type == "cuda" else plain.backward
    grads = (grad_spikes, grad_v_last, grad_v_seq)
    return run(*grads, x, saved, v, inverse_tau, switches, numbers, x_dtype, for_x, for_v, for_inverse_tau)


@cache
def _launch() -> ModuleType:
    # Not at the top: it imports Triton.
    return importlib.import_module("lightning_snnprec.kernels.launch")


@torch.library.custom_op(
    "lightning_snnprec::neuron_forward",
    mutates_args=(),
    schema="(Tensor x, Tensor? v, Tensor? inverse_tau, int[] switches, float[] numbers, ScalarType spikes_dtype, "
    "bool for_backward, bool last_membrane, bool all_membranes) -> (Tensor, Tensor, Tensor, Tensor)",
)
def neuron_forward(
    x: Tensor,
    v: Tensor | None,
    inverse_tau: Tensor | None,
    switches: Sequence[int],
    numbers: Sequence[float],
    spikes_dtype: torch.dtype,
    for_backward: bool,
    last_membrane: bool,
    all_membranes: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As `forward`, with `Switches` and `Numbers` as lists."""
    asked = (spikes_dtype, for_backward, last_membrane, all_membranes)
    return forward(x, v, inverse_tau, Switches(*switches), Numbers(*numbers), *asked)


@neuron_forward.register_fake
def _(
    x: Tensor,
    v: Tensor | None,
    inverse_tau: Tensor | None,
    switches: Sequence[int],
    numbers: Sequence[float],
    spikes_dtype: torch.dtype,
    for_backward: bool,
    last_membrane: bool,
    all_membranes: bool,
) -> Outputs:
    x = dense_steps(x)
    T, storage = x.shape[0], Switches(*switches).membrane.storage
    kept = kept_for_backward(x.dtype, storage, T) if for_backward else NOTHING
    return (
        empty(x, spikes_dtype, T),
        empty(x, storage, None if last_membrane else 0),
        empty(x, storage, T if all_membranes else 0),
        empty(x, storage, kept_rows(kept, T)),
    )


@torch.library.custom_op(
    "lightning_snnprec::neuron_backward",
    mutates_args=(),
    schema="(Tensor? grad_spikes, Tensor? grad_v_last, Tensor? grad_v_seq, Tensor? x, Tensor saved, Tensor? v, "
    "Tensor? inverse_tau, int[] switches, float[] numbers, ScalarType x_dtype, bool for_x, bool for_v, "
    "bool for_inverse_tau) -> (Tensor, Tensor, Tensor)",
)
def neuron_backward(
    grad_spikes: Tensor | None,
    grad_v_last: Tensor | None,
    grad_v_seq: Tensor | None,
    x: Tensor | None,
    saved: Tensor,
    v: Tensor | None,
    inverse_tau: Tensor | None,
    switches: Sequence[int],
    numbers: Sequence[float],
    x_dtype: torch.dtype,
    for_x: bool,
    for_v: bool,
    for_inverse_tau: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """As `backward`, with `Switches` and `Numbers` as lists."""
    given = (grad_spikes, grad_v_last, grad_v_seq, x, saved, v, inverse_tau)
    return backward(*given, Switches(*switches), Numbers(*numbers), x_dtype, for_x, for_v, for_inverse_tau)


@neuron_backward.register_fake
def _(
    grad_spikes: Tensor | None,
    grad_v_last: Tensor | None,
    grad_v_seq: Tensor | None,
    x: Tensor | None,
    saved: Tensor,
    v: Tensor | None,
    inverse_tau: Tensor | None,
    switches: Sequence[int],
    numbers: Sequence[float],
    x_dtype: torch.dtype,
    for_x: bool,
    for_v: bool,
    for_inverse_tau: bool,
) -> Gradients:
    x = saved if x is None else dense_steps(x)
    return (
        empty(x, x_dtype, x.shape[0] if for_x else 0),
        empty(x, torch.float32 if v is None else v.dtype, None if for_v else 0),
        x.new_empty(int(for_inverse_tau), dtype=torch.float32),
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Outputs) -> None:
    x, v, inverse_tau, switches, numbers, _, _, *asked = inputs
    switches = Switches(*switches)
    needs_input = kept_for_backward(x.dtype, switches.membrane.storage, x.shape[0]) != DIFFERENCES
    ctx.save_for_backward(x if needs_input else None, output[3], v, inverse_tau)
    ctx.switches, ctx.numbers, ctx.x_dtype, ctx.asked = switches, Numbers(*numbers), x.dtype, asked
    ctx.set_materialize_grads(False)


def _differentiate(ctx: Any, run: Any, grads: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
    x, saved, v, inverse_tau = ctx.saved_tensors
    needs = ctx.needs_input_grad[:3]
    # A gradient of a result without rows, which torch's own checks hand over, is none.
    given = (grads[0], *(grad if asked else None for grad, asked in zip(grads[1:3], ctx.asked, strict=True)))
    terms = (ctx.switches, ctx.numbers, ctx.x_dtype, *needs)
    grad_x, grad_v, grad_inverse_tau = run(*given, x, saved, v, inverse_tau, *terms)
    return (
        grad_x if needs[0] else None,
        grad_v if needs[1] else None,
        grad_inverse_tau.reshape(inverse_tau.shape) if needs[2] else None,
        *[None] * 6,
    )


def _operator_backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    return _differentiate(ctx, neuron_backward, grads)


neuron_forward.register_autograd(_operator_backward, setup_context=_setup_context)


class _Run(torch.autograd.Function):
    """As `neuron_forward`, for eager calls on plain tensors; the kept tensor stays inside."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        v: Tensor | None,
        inverse_tau: Tensor | None,
        switches: Switches,
        numbers: Numbers,
        spikes_dtype: torch.dtype,
        for_backward: bool,
        last_membrane: bool,
        all_membranes: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        asked = (spikes_dtype, for_backward, last_membrane, all_membranes)
        outputs = forward(x, v, inverse_tau, switches, numbers, *asked)
        _setup_context(ctx, (x, v, inverse_tau, switches, numbers, *asked), outputs)
        return outputs[:3]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        return _differentiate(ctx, backward, grads)


sequence = cast("Callable[..., tuple[Tensor, Tensor, Tensor]]", _Run.apply)  # torch does not type `apply`
"""As `neuron_forward`, for eager calls on plain tensors: spikes, last membrane, all membranes."""
