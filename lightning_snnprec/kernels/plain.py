"""The kernels' equations in plain torch, operation by operation: what they have to reproduce, on any device.

Forward equals the kernels to the last bit. So does backward, up to the exponentials and reciprocals of the slopes,
which are one instruction each on a GPU and may be an ULP off there, and up to the order of the sum over neurons.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lightning_snnprec.kernels.layout import dense_steps, empty
from lightning_snnprec.kernels.policy import CHECKPOINT_EVERY, FLOAT8, kept_for_backward, kept_rows
from lightning_snnprec.kernels.problem import Numbers, Switches
from lightning_snnprec.kernels.switches import CHECKPOINTS, DIFFERENCES, HARD, NOTHING, SOFT, SURROGATES


def forward(
    x_TBN: Tensor,
    v_BN: Tensor | None,
    inverse_tau: Tensor | None,
    switches: Switches,
    numbers: Numbers,
    spikes_dtype: torch.dtype,
    for_backward: bool,
    last_membrane: bool,
    all_membranes: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Spikes, last membrane, all membranes, and what backward needs; as `launch.forward`."""
    x = dense_steps(x_TBN)
    T, storage = x.shape[0], switches.membrane.storage
    kept = kept_for_backward(x.dtype, storage, T) if for_backward else NOTHING
    spikes = empty(x, spikes_dtype, T)
    v_last = empty(x, storage, None if last_membrane else 0)
    v_seq = empty(x, storage, T if all_membranes else 0)
    saved = empty(x, storage, kept_rows(kept, T))
    q = numbers.inverse_tau if inverse_tau is None else inverse_tau.reshape(())
    v = _first(x, v_BN, switches, numbers)
    for t in range(T):
        if kept == CHECKPOINTS and t and t % CHECKPOINT_EVERY == 0:
            saved[t // CHECKPOINT_EVERY - 1] = v.to(storage)
        h = _charge(x[t].float(), v, q, switches, numbers)
        fired = h >= numbers.v_threshold
        spikes[t] = fired
        if kept == DIFFERENCES:
            saved[t] = _saturated(torch.where(fired, (h - numbers.v_threshold).abs(), h - numbers.v_threshold), storage)
        v = _after(h, fired, switches, numbers)
        if all_membranes:
            v_seq[t] = v.to(storage)
    if last_membrane:
        v_last.copy_(v)
    return spikes, v_last, v_seq, saved


def backward(
    grad_spikes: Tensor | None,
    grad_v_last: Tensor | None,
    grad_v_seq: Tensor | None,
    x_TBN: Tensor | None,
    saved: Tensor,
    v_BN: Tensor | None,
    inverse_tau: Tensor | None,
    switches: Switches,
    numbers: Numbers,
    x_dtype: torch.dtype,
    for_x: bool,
    for_v: bool,
    for_inverse_tau: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of input, first membrane and 1 / tau; as `launch.backward`."""
    differences = kept_for_backward(x_dtype, switches.membrane.storage, 1) == DIFFERENCES
    x = saved if differences or x_TBN is None else dense_steps(x_TBN)
    T = x.shape[0]
    q = numbers.inverse_tau if inverse_tau is None else inverse_tau.reshape(())
    before, hs = _recalled(x, v_BN, q, differences, switches, numbers)
    grad_x = empty(x, x_dtype, T if for_x else 0)
    grad_q = torch.zeros(x.shape[1:], device=x.device)
    grad_v = torch.zeros(x.shape[1:], device=x.device) if grad_v_last is None else grad_v_last.float()
    for t in reversed(range(T)):
        h, u = hs[t], hs[t] - numbers.v_threshold
        fired = h >= numbers.v_threshold
        if differences:
            u = x[t].float()
            fired = ~torch.signbit(u) & ~u.isnan()
        grad_s = torch.zeros_like(h) if grad_spikes is None else grad_spikes[t].float()
        at_step = grad_v if grad_v_seq is None else grad_v + grad_v_seq[t].float()
        grad_h = _gradient_of_h(h, fired, u, grad_s, at_step, switches, numbers)
        grad_into_x, grad_v = grad_h, grad_h
        if switches.leaky:
            grad_v = grad_h - grad_h * q
            grad_into_x = grad_h * q if switches.decay_input else grad_h
            drive = _drive(h, before[t], None if differences else x[t].float(), q, switches, numbers)
            grad_q = _fma(grad_h, drive, grad_q)
        grad_v = _rounded(grad_v, switches.membrane.backward)
        if for_x:
            grad_x[t] = _rounded(grad_into_x, x_dtype)
    first = empty(x, torch.float32 if v_BN is None else v_BN.dtype, None if for_v else 0)
    if for_v:
        first.copy_(_rounded(grad_v, first.dtype))
    return grad_x, first, grad_q.sum().reshape(1) if for_inverse_tau else grad_q.new_empty(0)


def _recalled(
    x: Tensor, v_BN: Tensor | None, q: Tensor | float, differences: bool, switches: Switches, numbers: Numbers
) -> tuple[list[Tensor], list[Tensor]]:
    """Membranes before, and charged membranes in, every step: from inputs, or from differences."""
    v, before, hs = _first(x, v_BN, switches, numbers), [], []
    for row in x.unbind(0):
        before.append(v)
        if differences:
            u = row.float()
            h, fired = u + numbers.v_threshold, ~torch.signbit(u) & ~u.isnan()
        else:
            h = _charge(row.float(), v, q, switches, numbers)
            fired = h >= numbers.v_threshold
        hs.append(h)
        v = _after(h, fired, switches, numbers)
    return before, hs


def _first(x: Tensor, v_BN: Tensor | None, switches: Switches, numbers: Numbers) -> Tensor:
    if v_BN is None:
        return torch.full(x.shape[1:], numbers.rest, device=x.device, dtype=torch.float32)
    return _rounded(v_BN.float(), switches.membrane.storage)


def _charge(x: Tensor, v: Tensor, q: Tensor | float, switches: Switches, numbers: Numbers) -> Tensor:
    if not switches.leaky:
        return v + x
    above_rest = _above_rest(v, switches, numbers)
    return v + (x - above_rest) * q if switches.decay_input else v - above_rest * q + x


def _above_rest(v: Tensor, switches: Switches, numbers: Numbers) -> Tensor:
    return v - numbers.rest if switches.reset == HARD else v


def _after(h: Tensor, fired: Tensor, switches: Switches, numbers: Numbers) -> Tensor:
    s = fired.float()
    h = _rounded(h, switches.membrane.forward)
    if switches.reset == SOFT:
        v = h - s * numbers.v_threshold
    else:
        v = s * numbers.rest + (1.0 - s) * h if switches.reset == HARD else (1.0 - s) * h
    return _rounded(v, switches.membrane.storage)


def _drive(h: Tensor, v: Tensor, x: Tensor | None, q: Tensor | float, switches: Switches, numbers: Numbers) -> Tensor:
    """Derivative of h by 1 / tau."""
    if not switches.decay_input:
        return -_above_rest(v, switches, numbers)
    return (h - v) / q if x is None else x - _above_rest(v, switches, numbers)


def _gradient_of_h(
    h: Tensor, fired: Tensor, u: Tensor, grad_s: Tensor, grad_v: Tensor, switches: Switches, numbers: Numbers
) -> Tensor:
    if not switches.detach_reset:
        if switches.reset == SOFT:
            grad_s = _fma(grad_v, h.new_tensor(-numbers.v_threshold), grad_s)
        else:
            grad_s = _fma(grad_v, -h, grad_s)
            grad_s = _fma(grad_v, h.new_tensor(numbers.rest), grad_s) if switches.reset == HARD else grad_s
    through_reset = grad_v if switches.reset == SOFT else torch.where(fired, 0.0, grad_v)
    return _fma(grad_s, slope(u, numbers.a, numbers.b, SURROGATES[switches.surrogate]), through_reset)


def _fma(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """The sum a b + c with one rounding: the product is exact in FP64, where the sum hardly ever rounds twice."""
    return (a.double() * b.double() + c.double()).float()


def slope(u: Tensor, a: float, b: float, surrogate: str) -> Tensor:
    """Derivative of a surrogate at u = h - v_threshold; a and b are its two numbers, see `switches.SLOPE_NUMBERS`."""
    if surrogate == "sigmoid":
        e = torch.exp2(u.abs() * a)
        r = 1.0 / (1.0 + e)
        return b * (e * r * r)
    if surrogate == "atan":
        z = u * a
        return 1.0 / (1.0 + z * z) * b
    if surrogate == "piecewise_quadratic":
        return (b - a * u.abs()).clamp_min(0.0)
    if surrogate == "piecewise_exp":
        return b * torch.exp2(u.abs() * a)
    z = a + u.abs()
    if surrogate == "soft_sign":
        return 1.0 / (b * z * z)
    if surrogate == "super_spike":
        return 1.0 / (z * z) * b
    return b * torch.exp2(u * u * a)


def _rounded(v: Tensor, dtype: torch.dtype) -> Tensor:
    if dtype == torch.float32:
        return v
    return (_saturated(v, dtype) if dtype in FLOAT8 else v.to(dtype)).float()


def _saturated(u: Tensor, dtype: torch.dtype) -> Tensor:
    """`u` in `dtype`, beyond its range its largest value; NaN stays NaN. Torch's own casts differ between versions."""
    if dtype == torch.float32 or dtype == torch.bfloat16:
        return u.to(dtype)
    largest = torch.finfo(dtype).max
    return u.clamp(-largest, largest).to(dtype)
