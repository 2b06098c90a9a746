"""How far a tensor is from its reference: pure functions, in FP64, each giving a tensor with 0 dimensions.

`a` and `reference` have one shape and at least one element, else `ValueError`. An Inf that the reference has too
counts as no error; a NaN in either makes the result NaN.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from lightning_snnprec.arguments import int_fault, raise_faults
from lightning_snnprec.formats.rounding import spacing
from lightning_snnprec.formats.spec import FloatSpec


def absolute(a: Tensor, reference: Tensor) -> Tensor:
    """Returns the largest |a - reference|."""
    return _error("absolute", a, reference)[0].amax()


def relative(a: Tensor, reference: Tensor) -> Tensor:
    """Returns the largest |a - reference| / |reference|; 0 where both are 0, Inf where only the reference is."""
    error, reference = _error("relative", a, reference)
    return torch.where(error == 0, error, error / reference.abs()).amax()


def ulp(a: Tensor, reference: Tensor, spec: FloatSpec) -> Tensor:
    """Returns the largest |a - reference| in units of the spacing that `spec` has at |reference|.

    Under `min_normal`, zero included, that is the spacing of the subnormals; over `max`, that of the top binade.
    """
    error, reference = _error("ulp", a, reference)
    return (error / spacing(reference, spec)).amax()


def sqnr_db(a: Tensor, reference: Tensor) -> Tensor:
    """Returns the signal to quantization noise ratio, 10 log10(sum reference**2 / sum (a - reference)**2), in dB.

    Inf if a equals the reference, all zeros too; -Inf if only the reference is all zeros, or only a has an Inf. Both
    sums are taken relative to the largest magnitude, so that neither underflows nor overflows.
    """
    error, reference = _error("sqnr_db", a, reference)
    noise, signal = _log10_norm(error), _log10_norm(reference)
    return torch.where(noise == -math.inf, math.inf, 20.0 * (signal - noise))


def cosine(a: Tensor, reference: Tensor) -> Tensor:
    """Returns the cosine of the angle between both, flattened; 1 if both are all zeros, 0 if one is; Inf gives NaN."""
    _error("cosine", a, reference)
    first, second = _unit(a), _unit(reference)
    dot = (first * second).sum().clamp(-1.0, 1.0)
    return torch.where((first == 0).all() & (second == 0).all(), 1.0, dot)


def topk_agreement(a: Tensor, reference: Tensor, k: int) -> Tensor:
    """Returns which share of the reference's k largest along the last dimension are also a's, averaged over rows.

    Of equal values, the one of the lower index counts as larger. Rows are [..., C] of logits; a k over C, a k that is
    no int of at least 1, and rows without elements are `ValueError`s.
    """
    error, _ = _error("topk_agreement", a, reference)
    raise_faults("topk_agreement", [int_fault("k", k, minimum=1)])
    if a.dim() == 0 or k > a.shape[-1]:
        raise ValueError(f"topk_agreement: k={k} needs rows of at least as many elements; found {tuple(a.shape)}.")
    chosen = [_top(rows, k) for rows in (a, reference)]
    share = (chosen[0] & chosen[1]).sum(-1).double() / k
    return torch.where(error.isnan().any(), math.nan, share.mean())


def _top(rows: Tensor, k: int) -> Tensor:
    order = rows.detach().double().sort(dim=-1, descending=True, stable=True).indices[..., :k]
    return torch.zeros(rows.shape, dtype=torch.bool, device=rows.device).scatter(-1, order, True)


def _error(name: str, a: Tensor, reference: Tensor) -> tuple[Tensor, Tensor]:
    if a.shape != reference.shape or a.numel() == 0:
        shapes = f"{tuple(a.shape)} and {tuple(reference.shape)}"
        raise ValueError(f"{name}: needs two tensors of one shape with at least one element; found {shapes}.")
    a, reference = a.detach().double(), reference.detach().double()
    return torch.where(a == reference, 0.0, (a - reference).abs()), reference


def _log10_norm(x: Tensor) -> Tensor:
    """log10 of the 2-norm; -Inf of zeros, Inf with an Inf."""
    most = x.abs().amax()
    plain = (most == 0) | most.isinf()
    total = torch.where(plain, 1.0, (x / most).square().sum())
    return most.log10() + 0.5 * total.log10()


def _unit(x: Tensor) -> Tensor:
    x = x.detach().double()
    most = x.abs().amax()
    scaled = torch.where(most == 0, x, x / most)
    return torch.where(most == 0, scaled, scaled / scaled.square().sum().sqrt())
