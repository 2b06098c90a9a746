"""The entry of the neuron kernels: all T time steps of IF, LIF or ParametricLIF neurons in one call.

Bytes per neuron and step with BF16 input and the default policy: forward reads the input (2) and writes spikes (2);
backward reads the spikes' gradient (2) and the input (2) and writes the input's gradient (2). That makes 10, where
keeping h takes 12 with BF16 storage and 28 with FP32 casts; and nothing but the input is held for backward. State
stays in registers; from rest no first membrane is read. `lightning_snnprec.kernels.traffic` counts the rest.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from lightning_snnprec.arguments import raise_faults
from lightning_snnprec.kernels import operators, selfcheck
from lightning_snnprec.kernels.layout import dense_steps
from lightning_snnprec.kernels.policy import FLOAT8, INPUTS
from lightning_snnprec.kernels.problem import Neuron, encode, encoded


def run_sequence(
    x_TBN: Tensor,
    v_BN: Tensor | None,
    neuron: Neuron,
    inverse_tau: Tensor | None = None,
    *,
    last_membrane: bool = True,
    all_membranes: bool = False,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """All T steps of `x_TBN`; results are laid out in memory as the input is.

    Differentiable once, in input, first membrane and `inverse_tau`. On CUDA by Triton kernels, elsewhere by the plain
    torch that defines them. The gradient of a membrane has the membrane's dtype.

    Args:
        x_TBN: input [T, B, ...] of a dtype in `policy.INPUTS`, T >= 1; any strides, B and others may be 0.
        v_BN: membrane before the first step [B, ...], any floating dtype; None is at rest.
        neuron: its constants and its policy.
        inverse_tau: 1 / tau of "plif", a tensor with one element; None for others.
        last_membrane: whether to give the membrane after the last step.
        all_membranes: whether to give the membrane after every step.

    Returns:
        Spikes [T, B, ...] in the input's dtype, torch's default one for bool and integer input; the last membrane
        [B, ...] and all membranes [T, B, ...] in the storage dtype, None where not asked for.

    Raises:
        ValueError: no time steps, a first membrane of another shape, or an `inverse_tau` that does not fit the kind.
        RuntimeError: in the first eager call with a storage below FP32, a kernel that fails its self-check.
    """
    raise_faults("run_sequence", _faults(x_TBN, v_BN, neuron, inverse_tau))
    x = dense_steps(x_TBN)
    if inverse_tau is not None:
        inverse_tau = inverse_tau.float()
    dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
    for_backward = torch.is_grad_enabled() and any(
        tensor is not None and tensor.requires_grad for tensor in (x, v_BN, inverse_tau)
    )
    asked = (dtype, for_backward, last_membrane, all_membranes)
    if torch.compiler.is_compiling() or type(x) not in _PLAIN:
        switches, numbers = encode(neuron)
        spikes, v_last, v_seq, _ = operators.neuron_forward(x, v_BN, inverse_tau, switches, numbers, *asked)
    else:
        switches, numbers = encoded(neuron)
        selfcheck.ensure(x.device, switches, x.dtype)
        if for_backward:
            spikes, v_last, v_seq = operators.sequence(x, v_BN, inverse_tau, switches, numbers, *asked)
        else:
            spikes, v_last, v_seq, _ = operators.forward(x, v_BN, inverse_tau, switches, numbers, *asked)
    return spikes, v_last if last_membrane else None, v_seq if all_membranes else None


_PLAIN = (Tensor, torch.nn.Parameter)


def _faults(x_TBN: Tensor, v_BN: Tensor | None, neuron: Neuron, inverse_tau: Tensor | None) -> list[str]:
    # A kernel would read past the end of these.
    found = []
    if x_TBN.shape[0] == 0:
        found.append(f"the input has no time steps: its shape is {tuple(x_TBN.shape)}.")
    if v_BN is not None and v_BN.shape != x_TBN.shape[1:]:
        found.append(f"the membrane has shape {tuple(v_BN.shape)}, a time step of the input {tuple(x_TBN.shape[1:])}.")
    if (inverse_tau is not None) != (neuron.kind == "plif"):
        found.append(f"inverse_tau goes with kind='plif' and only with it; found kind={neuron.kind!r}.")
    elif inverse_tau is not None and inverse_tau.numel() != 1:
        found.append(f"inverse_tau has {inverse_tau.numel()} elements; one is allowed.")
    return found


def obstacles(device: torch.device, storage: torch.dtype | None = None) -> tuple[str, ...]:
    """Why the Triton kernels cannot run on a device with this storage, one sentence each; empty when they can."""
    return _obstacles(device, storage)


@cache
def _obstacles(device: torch.device, storage: torch.dtype | None) -> tuple[str, ...]:
    if device.type != "cuda":
        return (f"the neuron kernels need a CUDA device; this one is {device.type!r}.",)
    if not torch.cuda.is_available():
        return ("the neuron kernels need a CUDA device, and torch finds none.",)
    found = []
    if find_spec("triton") is None:
        found.append("the neuron kernels need Triton, which is not installed: pip install 'lightning-snnprec[triton]'.")
    capability = torch.cuda.get_device_capability(device)
    needed = (8, 9) if storage in FLOAT8 else (8, 0)
    if capability < needed:
        told = "float8 membranes" if storage in FLOAT8 else "the neuron kernels"
        found.append(
            f"{told} need compute capability {needed[0]}.{needed[1]}; this GPU has {capability[0]}.{capability[1]} "
            f"({torch.cuda.get_device_name(device)})."
        )
    return tuple(found)


def reads(x: Tensor) -> bool:
    """Whether the kernels read this input: a dtype they know, and spikes of no wider dtype than FP32."""
    return x.dtype in INPUTS and (x.is_floating_point() or torch.get_default_dtype() != torch.float64)
