"""Surrogate gradients: a Heaviside step forward, a bounded bell-shaped slope backward.

Each surrogate is called with u = h - v_threshold (any shape) and gives 1 where u >= 0 and 0 elsewhere, NaN
included, in u's dtype. Its backward multiplies with a slope that is computed in FP32 (FP64 for FP64 u) by a form
that stays finite for every finite u, and casts the product to u's dtype. `alpha` sharpens the slope.
With `spiking=False` the smooth primitive of the slope takes the step's place, and autograd differentiates it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, cast

import torch
from torch import Tensor, nn

from lightning_snnprec.arguments import bool_fault, choice_fault, number_fault, raise_faults

Alpha = float | Tensor
"""The sharpness: a float, or inside a compiled graph an FP64 tensor with 0 dimensions."""

Slope = Callable[[Tensor, Alpha], Tensor]


def _wide(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype == torch.float64 else torch.float32


class _Step(torch.autograd.Function):
    """Heaviside step of u forward, `slope(u, alpha)` backward; differentiable twice."""

    # Not the newer form with setup_context: it takes three times as long per call, and there is one a time step.
    @staticmethod
    def forward(ctx: Any, u: Tensor, alpha: Alpha, slope: Slope) -> Tensor:
        ctx.save_for_backward(u)
        ctx.alpha, ctx.slope = alpha, slope
        return (u >= 0).to(u.dtype)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None]:
        (grad,) = grads
        (u,) = ctx.saved_tensors
        wide = _wide(u.dtype)
        return (grad.to(wide) * ctx.slope(u.to(wide), ctx.alpha)).to(u.dtype), None, None


_step = cast("Callable[[Tensor, Alpha, Slope], Tensor]", _Step.apply)  # torch does not type `apply`


class Surrogate(nn.Module):
    """What all surrogates share: `alpha`, `spiking`, the step forward and the slope backward.

    Args:
        alpha: sharpness, a finite number over 0.
        spiking: False gives the smooth primitive of the slope instead of the step.

    Raises:
        ValueError: a bad `alpha` or `spiking`, or `spiking=False` where there is no primitive.
    """

    def __init__(self, alpha: float, spiking: bool = True) -> None:
        super().__init__()
        raise_faults(type(self).__name__, [number_fault("alpha", alpha, above=0.0), self._spiking_fault(spiking)])
        self._alpha = float(alpha)
        self.spiking = spiking

    @property
    def alpha(self) -> float:
        """Sharpness of the slope; may be set, to anneal it."""
        return self._alpha

    @alpha.setter
    def alpha(self, alpha: float) -> None:
        raise_faults(type(self).__name__, [number_fault("alpha", alpha, above=0.0)])
        self._alpha = float(alpha)

    def set_spiking_mode(self, spiking: bool) -> None:
        """Chooses between the step (True) and its smooth primitive (False)."""
        raise_faults(type(self).__name__, [self._spiking_fault(spiking)])
        self.spiking = spiking

    def _spiking_fault(self, spiking: object) -> str | None:
        if spiking is False and type(self).primitive is Surrogate.primitive:
            return "spiking=False: its slope is no derivative of a step from 0 to 1, so it has no primitive form."
        return bool_fault("spiking", spiking)

    @staticmethod
    def slope(u: Tensor, alpha: Alpha) -> Tensor:
        """The derivative used in backward, at u = h - v_threshold (FP32 or FP64), same shape and dtype."""
        raise NotImplementedError("a surrogate defines slope(u, alpha)")

    @staticmethod
    def primitive(u: Tensor, alpha: float) -> Tensor:
        """The smooth step whose derivative is `slope`, at u (FP32 or FP64), same shape and dtype."""
        raise NotImplementedError("this surrogate has no primitive form; use spiking=True")

    def forward(self, u: Tensor) -> Tensor:
        """Spikes (or, with `spiking=False`, values of the primitive) at u = h - v_threshold, in u's dtype."""
        if self.spiking:
            if not (torch.is_grad_enabled() and u.requires_grad):
                return (u >= 0).to(u.dtype)
            # A float that changes between compilations would be lifted into the graph, where backward can't see it.
            fixed = not torch.compiler.is_compiling()
            return _step(u, self.alpha if fixed else u.new_full((), self.alpha, dtype=torch.float64), self.slope)
        return self.primitive(u.to(_wide(u.dtype)), self.alpha).to(u.dtype)

    def extra_repr(self) -> str:
        """The parameters, for `repr`."""
        return f"alpha={self.alpha}, spiking={self.spiking}"


class Sigmoid(Surrogate):
    """Slope alpha s (1 - s) with s = sigmoid(alpha u) (Zenke and Vogels 2021, doi 10.1162/neco_a_01367)."""

    def __init__(self, alpha: float = 4.0, spiking: bool = True) -> None:
        super().__init__(alpha, spiking)

    @staticmethod
    def slope(u: Tensor, alpha: Alpha) -> Tensor:
        """The derivative of `primitive`; at most alpha / 4."""
        s = torch.sigmoid(alpha * u)
        return (1.0 - s) * s * alpha

    @staticmethod
    def primitive(u: Tensor, alpha: float) -> Tensor:
        """The logistic function of alpha u."""
        return torch.sigmoid(alpha * u)


class ATan(Surrogate):
    """Slope (alpha / 2) / (1 + (pi alpha u / 2)^2) (Fang et al. 2021, arXiv 2007.05785)."""

    def __init__(self, alpha: float = 2.0, spiking: bool = True) -> None:
        super().__init__(alpha, spiking)

    @staticmethod
    def slope(u: Tensor, alpha: Alpha) -> Tensor:
        """The derivative of `primitive`; at most alpha / 2."""
        z = u * (math.pi / 2 * alpha)
        return alpha / 2 / (1.0 + z * z)

    @staticmethod
    def primitive(u: Tensor, alpha: float) -> Tensor:
        """The arc tangent of pi alpha u / 2, scaled and shifted to lie between 0 and 1."""
        return torch.atan(u * (math.pi / 2 * alpha)) / math.pi + 0.5


class PiecewiseQuadratic(Surrogate):
    """Slope max(0, alpha - alpha^2 |u|), a triangle (Esser et al. 2016, arXiv 1603.08270)."""

    def __init__(self, alpha: float = 1.0, spiking: bool = True) -> None:
        super().__init__(alpha, spiking)

    @staticmethod
    def slope(u: Tensor, alpha: Alpha) -> Tensor:
        """The derivative of `primitive`; at most alpha, and 0 from |u| = 1 / alpha on."""
        return (alpha - alpha * alpha * u.abs()).clamp_min(0.0)

    @staticmethod
    def primitive(u: Tensor, alpha: float) -> Tensor:
        """Two parabolas between -1 / alpha and 1 / alpha; 0 below and 1 above."""
        # Clamping first keeps the square finite, and its gradient outside the parabolas is exactly 0.
        z = (alpha * u).clamp(-1.0, 1.0)
        return 0.5 + z - 0.5 * z * z.abs()


class PiecewiseExp(Surrogate):
    """Slope (alpha / 2) exp(-alpha |u|) (Shrestha and Orchard 2018, arXiv 1810.08646)."""

    def __init__(self, alpha: float = 1.0, spiking: bool = True) -> None:
        super().__init__(alpha, spiking)

    @staticmethod
    def slope(u: Tensor, alpha: Alpha) -> Tensor:
        """The derivative of `primitive`; at most alpha / 2."""
        return alpha / 2 * torch.exp(-alpha * u.abs())

    @staticmethod
    def primitive(u: Tensor, alpha: float) -> Tensor:
        """The distribution function of a Laplace distribution with scale 1 / alpha."""
        # A sign of +-1 instead of abs(): the gradient of abs() at 0 would be 0.
        sign = torch.where(u >= 0, 1.0, -1.0).to(u.dtype)
        tail = 0.5 * torch.exp(-alpha * (sign * u))
        return torch.where(u >= 0, 1.0 - tail, tail)


class SoftSign(Surrogate):
    """Slope 1 / (2 alpha (1 / alpha + |u|)^2), of the softsign function of alpha u."""

    def __init__(self, alpha: float = 2.0, spiking: bool = True) -> None:
        super().__init__(alpha, spiking)

    @staticmethod
    def slope(u: Tensor, alpha: Alpha) -> Tensor:
        """The derivative of `primitive`; at most alpha / 2."""
        z = 1.0 / alpha + u.abs()
        return 1.0 / (2.0 * alpha * z * z)

    @staticmethod
    def primitive(u: Tensor, alpha: float) -> Tensor:
        """The softsign of alpha u, scaled and shifted to lie between 0 and 1."""
        # Not through alpha u, which may overflow.
        return (u / (1.0 / alpha + u.abs()) + 1.0) / 2.0


class SuperSpike(Surrogate):
    """Slope alpha / (1 + |u|)^2 (Zenke and Ganguli 2018, arXiv 1705.11146); alpha scales it, u is not scaled."""

    def __init__(self, alpha: float = 1.0, spiking: bool = True) -> None:
        super().__init__(alpha, spiking)

    @staticmethod
    def slope(u: Tensor, alpha: Alpha) -> Tensor:
        """The slope; at most alpha."""
        z = 1.0 + u.abs()
        return alpha / (z * z)


class Erf(Surrogate):
    """Slope alpha / sqrt(pi) exp(-(alpha u)^2), a Gaussian (Yin et al. 2020, arXiv 2005.11633)."""

    def __init__(self, alpha: float = 2.0, spiking: bool = True) -> None:
        super().__init__(alpha, spiking)

    @staticmethod
    def slope(u: Tensor, alpha: Alpha) -> Tensor:
        """The derivative of `primitive`; at most alpha / sqrt(pi)."""
        z = alpha * u
        return alpha / math.sqrt(math.pi) * torch.exp(-z * z)

    @staticmethod
    def primitive(u: Tensor, alpha: float) -> Tensor:
        """Half the complementary error function of -alpha u."""
        return torch.erfc(-alpha * u) / 2.0


SURROGATES: Mapping[str, type[Surrogate]] = MappingProxyType(
    {
        "sigmoid": Sigmoid,
        "atan": ATan,
        "piecewise_quadratic": PiecewiseQuadratic,
        "piecewise_exp": PiecewiseExp,
        "soft_sign": SoftSign,
        "super_spike": SuperSpike,
        "erf": Erf,
    }
)
"""Names for recipes and kernels."""


def from_name(name: str, alpha: float | None = None, spiking: bool = True) -> Surrogate:
    """Makes the surrogate called `name` in `SURROGATES`.

    Args:
        name: a key of `SURROGATES`.
        alpha: sharpness; None takes the class's default.
        spiking: False gives the smooth primitive instead of the step.

    Raises:
        ValueError: an unknown name (near names are given), or a bad `alpha` or `spiking`.
    """
    if fault := choice_fault("surrogate", name, SURROGATES):
        raise ValueError(fault)
    kind: Callable[..., Surrogate] = SURROGATES[name]
    return kind(spiking=spiking) if alpha is None else kind(alpha=alpha, spiking=spiking)
