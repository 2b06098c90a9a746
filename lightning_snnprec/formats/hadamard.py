"""The random Hadamard transform that spreads outliers before a block is quantized to FP4."""

from __future__ import annotations

import torch
from torch import Tensor

HADAMARD_SIZE = 16


def random_hadamard(x: Tensor, signs: Tensor, *, validate: bool = True) -> Tensor:
    """Returns (x * signs) H / 4 for every 16 elements of the last dimension; H is Sylvester's Hadamard matrix.

    The transform is orthonormal: applied along the contracted dimension of both operands with the same signs, it
    leaves their product unchanged but for rounding. Transformer Engine's NVFP4 recipe transforms the operands of the
    weight gradient so. It is computed by additions in four stages, in FP32 (FP64 for FP64 x), so that the result does
    not depend on a matrix product's precision. No gradient flows.

    Args:
        x: floating point tensor [..., C], C a multiple of 16.
        signs: [16], each 1 or -1.
        validate: look at the signs, which waits for the device.

    Returns:
        FP32 of x's shape, FP64 for FP64 x.

    Raises:
        ValueError: C is not a multiple of 16, or bad signs.
    """
    groups, signs = _prepare(x, signs, validate=validate)
    return _transform(groups * signs).reshape(x.shape)


def random_hadamard_inverse(y: Tensor, signs: Tensor, *, validate: bool = True) -> Tensor:
    """Returns the x whose `random_hadamard(x, signs)` is `y`, up to rounding; arguments and errors as there."""
    groups, signs = _prepare(y, signs, validate=validate)
    return (_transform(groups) * signs).reshape(y.shape)


def random_signs(generator: torch.Generator | None = None, device: torch.device | str | None = None) -> Tensor:
    """Draws a sign vector for `random_hadamard`: FP32 [16] of 1 and -1."""
    return 1.0 - 2.0 * torch.randint(0, 2, (HADAMARD_SIZE,), generator=generator, device=device).float()


def _prepare(x: Tensor, signs: Tensor, *, validate: bool) -> tuple[Tensor, Tensor]:
    size = HADAMARD_SIZE
    if x.dim() == 0 or x.shape[-1] % size:
        raise ValueError(f"random_hadamard: needs the last dimension in multiples of {size}; x has {tuple(x.shape)}.")
    if signs.shape != (size,) or (validate and not bool((signs.abs() == 1).all())):
        raise ValueError(f"random_hadamard: needs {size} signs, each 1 or -1; found {signs}.")
    dtype = torch.float64 if x.dtype == torch.float64 else torch.float32
    return x.detach().to(dtype).reshape(*x.shape[:-1], x.shape[-1] // size, size), signs.to(x.device, dtype)


def _transform(groups: Tensor) -> Tensor:
    """H / 4 on the last dimension of 16: H is the Kronecker product of four matrices [[1, 1], [1, -1]]."""
    cube = groups.reshape(*groups.shape[:-1], 2, 2, 2, 2).clone(memory_format=torch.contiguous_format)
    other = torch.empty_like(cube)
    for dim in (-4, -3, -2, -1):
        first, second = cube.unbind(dim)
        above, below = other.unbind(dim)
        torch.add(first, second, out=above)
        torch.sub(first, second, out=below)
        cube, other = other, cube
    return cube.flatten(-4).div_(4.0)
