"""How closely numbers agree where they are not bit-equal, and why; every other comparison is `torch.equal`."""

from __future__ import annotations

import torch

Tolerance = dict[str, float]

# SpikingJelly multiplies grad * (1 - s) * s * alpha from the left in FP64, and grad * slope in FP32; this
# package always does the latter. A few roundings apart, carried through at most ten time steps.
PRODUCT_ORDER: Tolerance = {"rtol": 1e-11, "atol": 1e-13}

# SpikingJelly's FP64 path takes sigmoid(w) anew in every time step, its FP32 path and this package once per forward;
# the gradient of w is summed before or after it passes the sigmoid.
SIGMOID_ONCE: Tolerance = PRODUCT_ORDER

# The primitives clamp or fold their argument to stay bounded, so that their roundings differ from SpikingJelly's.
PRIMITIVE_FP64: Tolerance = {"rtol": 1e-11, "atol": 1e-13}
PRIMITIVE_FP32: Tolerance = {"rtol": 1e-4, "atol": 1e-5}

# A compiled graph contracts to FMA and uses other exponentials.
COMPILED: Tolerance = {"rtol": 1e-5, "atol": 1e-6}


def slope(dtype: torch.dtype, alpha: float) -> Tolerance:
    """A slope of up to alpha, computed in FP32 (FP64 for FP64) and rounded once to `dtype`, against an FP64 formula."""
    computed = torch.finfo(torch.float64 if dtype == torch.float64 else torch.float32).eps
    stored = torch.finfo(dtype)
    # exp(-z) has a relative error of z eps, and reaches that of the tails at an absolute error below 4 eps.
    return {"rtol": stored.eps + 8 * computed, "atol": 4 * alpha * computed + stored.smallest_normal * stored.eps}
