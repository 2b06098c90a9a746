"""Compares kernels that store below FP32 with plain torch, bit for bit, once per device in a process.

A compiler can get narrow stores wrong without a sign of it: Triton 3.6.0's own ptxas does, for an 8-bit transpose
through shared memory on compute capability 9.0. These kernels do nothing of that kind, and this makes sure. The inputs
are dyadic numbers of few bits and the slope is a triangle, so that every FP32 result is exact, with or without FMA,
and all that rounds is what the policy rounds.
"""

from __future__ import annotations

from importlib.metadata import version

import torch
from torch import Tensor

from lightning_snnprec.kernels import plain
from lightning_snnprec.kernels.policy import DTYPES, Membrane, kept_for_backward
from lightning_snnprec.kernels.problem import Neuron, Numbers, Switches, encode
from lightning_snnprec.kernels.tiles import Tile, backward_tile, forward_tile

_SHAPES = ((4, 2**11), (3, 2**10 + 5))
"""T and N: whole segments and full vectors; a part of a segment and single elements."""

_LARGE = 2**24
"""Neurons for whose tile is checked, as small layers have tiles of their own."""

_FP32 = DTYPES.index(torch.float32)
_passed: set[tuple[object, ...]] = set()


def ensure(device: torch.device, switches: Switches, x_dtype: torch.dtype) -> None:
    """As `check_policy`, for a neuron's switches; cheap when there is nothing to check."""
    if switches[-3:] == (_FP32, _FP32, _FP32) or device.type != "cuda":
        return
    if (device, switches[-3:], x_dtype) not in _passed:
        check_policy(device, switches.membrane, x_dtype)


def check_policy(device: torch.device, membrane: Membrane, x_dtype: torch.dtype) -> None:
    """Compares the kernels of a policy with plain torch if that has not been done on this device yet.

    Does nothing off CUDA, for a policy that is FP32 throughout, and while a CUDA graph is captured or a model
    compiled: call it before.

    Args:
        device: where the kernels will run.
        membrane: dtypes of storage, forward and backward arithmetic, see `policy.membrane`.
        x_dtype: dtype of the neurons' input.

    Raises:
        RuntimeError: a kernel gives wrong bits.
    """
    key = (device, tuple(DTYPES.index(dtype) for dtype in membrane), x_dtype)
    if device.type != "cuda" or membrane == Membrane() or key in _passed:
        return
    if torch.compiler.is_compiling() or torch.cuda.is_current_stream_capturing():
        return
    verify(device, membrane, x_dtype)
    _passed.add(key)


def verify(device: torch.device, membrane: Membrane, x_dtype: torch.dtype) -> None:
    """Compares the kernels of a policy with plain torch, for inputs of `x_dtype`.

    Raises:
        RuntimeError: they differ; with the names of the results, the versions, and what to do.
    """
    with torch.no_grad():
        wrong = [fault for T, N in _SHAPES for fault in _faults(device, membrane, x_dtype, T, N)]
    if wrong:
        raise RuntimeError(
            f"the neuron kernels for {membrane} with {x_dtype} input give wrong bits in {', '.join(wrong)} on "
            f"{_name(device)} (torch {torch.__version__}, triton {version('triton')}). This is a fault of the GPU "
            "compiler: set TRITON_PTXAS_PATH to another ptxas, such as that of CUDA 13.0 or newer "
            "(/usr/local/cuda/bin/ptxas), with a fresh TRITON_CACHE_DIR; or use neuron_storage=None."
        )


def _faults(device: torch.device, membrane: Membrane, x_dtype: torch.dtype, T: int, N: int) -> list[str]:
    from lightning_snnprec.kernels import launch  # Triton, at first use

    switches, numbers = _terms(membrane)
    grid = 32.0 if x_dtype == torch.bfloat16 else 256.0
    x = _dyadic(T, N, 4 * grid, grid, device).to(x_dtype)
    asked = (switches, numbers, torch.float32 if x_dtype.itemsize == 1 else x_dtype, True, True, True)
    ours = launch.forward(x, None, None, *asked, tile=_tile(x, membrane.storage, forward=True))
    theirs = plain.forward(x, None, None, *asked)
    wrong = _different(("spikes", "last membrane", "membranes", "kept"), ours, theirs)

    grad = _dyadic(T, N, 8.0, 4.0, device).to(asked[2])
    rest = (x, theirs[3], None, None, switches, numbers, x_dtype, True, True, False)
    gradients = launch.backward(grad, None, None, *rest, tile=_tile(x, membrane.storage, forward=False))
    wrong += _different(("input gradient", "membrane gradient"), gradients, plain.backward(grad, None, None, *rest))
    return [f"{name} (T={T}, N={N})" for name in wrong]


def _terms(membrane: Membrane) -> tuple[Switches, Numbers]:
    neuron = Neuron("lif", detach_reset=True, surrogate="piecewise_quadratic", alpha=1.0, tau=2.0)
    switches, numbers = encode(neuron)
    storage, forward, backward = (DTYPES.index(dtype) for dtype in membrane)
    return switches._replace(storage=storage, forward=forward, backward=backward), numbers


def _dyadic(T: int, N: int, most: float, grid: float, device: torch.device) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return (torch.randint(-int(most), int(most), (T, N), generator=generator) / grid).to(device)


def _tile(x: Tensor, storage: torch.dtype, *, forward: bool) -> Tile:
    T, N = x.shape
    align = 16 if N % 16 == 0 else 1
    if forward:
        return forward_tile(T, x.dtype.itemsize, _LARGE, align, 1)
    return backward_tile(T, x.dtype.itemsize, kept_for_backward(x.dtype, storage, T), _LARGE, align, 1)


def _different(names: tuple[str, ...], ours: tuple[Tensor, ...], theirs: tuple[Tensor, ...]) -> list[str]:
    pairs = zip(names, ours, theirs, strict=False)
    return [name for name, a, b in pairs if not torch.equal(a.view(torch.uint8), b.view(torch.uint8))]


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
