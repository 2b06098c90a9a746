"""Numbers and names by which host code and kernels mean the same thing; plain Python, no Triton, no tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

SOFT, HARD_TO_ZERO, HARD = 0, 1, 2
"""Resets: subtract the threshold; go to 0; go to `v_reset`."""

NOTHING, DIFFERENCES, CHECKPOINTS = 0, 1, 2
"""What forward writes for backward on top of the input, see `lightning_snnprec.kernels.policy`."""

_LOG2_E = math.log2(math.e)

SLOPE_NUMBERS: Mapping[str, Callable[[float], tuple[float, float]]] = MappingProxyType(
    {
        "sigmoid": lambda alpha: (-alpha * _LOG2_E, alpha),
        "atan": lambda alpha: (math.pi / 2 * alpha, alpha / 2),
        "piecewise_quadratic": lambda alpha: (alpha * alpha, alpha),
        "piecewise_exp": lambda alpha: (-alpha * _LOG2_E, alpha / 2),
        "soft_sign": lambda alpha: (1.0 / alpha, 2.0 * alpha),
        "super_spike": lambda alpha: (1.0, alpha),
        "erf": lambda alpha: (-alpha * alpha * _LOG2_E, alpha / math.sqrt(math.pi)),
    }
)
"""The two numbers that a slope takes inside a kernel, from alpha. With e = 2^(a |u|), or 2^(a u^2) for "erf":

    sigmoid              b e / (1 + e)^2
    atan                 b / (1 + (a u)^2)
    piecewise_quadratic  max(0, b - a |u|)
    piecewise_exp, erf   b e
    soft_sign            1 / (b (a + |u|)^2)
    super_spike          b / (a + |u|)^2
"""

SURROGATES = tuple(SLOPE_NUMBERS)
"""Names by number."""
