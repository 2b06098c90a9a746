"""The three GEMMs of a simulated linear layer as one autograd function."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from lightning_snnprec.precision.engines.operands import Cast


@dataclass
class Operand:
    """An input that was cast.

    Args:
        x: the input itself, `[..., I]`, in the graph.
        cast: its two casts.
        dtype: dtype in which the layer takes its input and gives its output.
        training: whether this forward is one of training, which leaves a trace in histories.
    """

    x: Tensor
    cast: Cast
    dtype: torch.dtype
    training: bool


def compute_dtype(x: Tensor) -> torch.dtype:
    """Dtype of a layer's input and output: that of autocast where it is on, else the input's own."""
    if torch.is_autocast_enabled(x.device.type):
        return torch.get_autocast_dtype(x.device.type)
    return x.dtype


class EmulatedLinear(torch.autograd.Function):
    """fprop, dgrad and wgrad on cast operands, with FP32 sums."""

    @staticmethod
    @override
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        """Output `[..., O]` of (x, weight, bias, x's operand, weight's cast, layer, engine)."""
        x, weight, bias, operand, w_cast, layer, engine = inputs
        x_cast = operand.cast
        with torch.autocast(x.device.type, enabled=False):
            y_NO = x_cast.rows @ w_cast.rows.t()
            if bias is not None:
                y_NO = y_NO + bias.float()
        ctx.save_for_backward(x_cast.columns, w_cast.columns)
        ctx.layer, ctx.engine, ctx.training = layer, engine, operand.training
        ctx.x_shape, ctx.x_dtype = x.shape, x.dtype
        ctx.w_shape, ctx.w_dtype = weight.shape, weight.dtype
        ctx.bias_dtype = None if bias is None else bias.dtype
        output: Tensor = y_NO.to(operand.dtype).reshape(*x.shape[:-1], weight.shape[0])
        return output

    @staticmethod
    @override
    def backward(ctx: Any, *grads: Any) -> Any:
        """Gradients of x, weight and bias, in their dtypes."""
        (grad,) = grads
        x_columns_IN, w_columns_IO = ctx.saved_tensors
        grad_NO = grad.float().reshape(-1, grad.shape[-1])
        dx = dw = db = None
        with torch.autocast(grad.device.type, enabled=False):
            cast = ctx.engine.cast_grad(ctx.layer, grad_NO, training=ctx.training)
            if ctx.needs_input_grad[0]:
                out = cast.rows.shape[1]
                dx = (cast.rows @ w_columns_IO[:, :out].t()).to(ctx.x_dtype).reshape(ctx.x_shape)
            if ctx.needs_input_grad[1]:
                dw = (cast.columns @ x_columns_IN.t()).to(ctx.w_dtype)
            if ctx.needs_input_grad[2]:
                db = grad_NO.sum(0).to(ctx.bias_dtype)
        return dx, dw, db, None, None, None, None
