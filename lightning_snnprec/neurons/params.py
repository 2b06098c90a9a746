"""What a neuron is made with: the policy of its membrane, and the checks of its arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch

from lightning_snnprec.arguments import bool_fault, choice_fault, number_fault, raise_faults

Arithmetic = Literal["fp32", "bf16", "fp16", "fp8"]
StepMode = Literal["s", "m"]

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
STORAGE = (torch.float32, torch.float16, torch.bfloat16, *FLOAT8)

_NAMES = dict(zip(STORAGE, ("fp32", "fp16", "bf16", "float8_e4m3fn", "float8_e5m2"), strict=True))


@dataclass(frozen=True)
class NeuronPolicy:
    """How membranes are stored between time steps and computed.

    Args:
        storage: dtype of the membrane between steps; None is FP32 (FP64 for FP64 input), any kernel.
        forward: arithmetic of the forward pass; below "fp32" it needs `storage`, "fp8" a float8 storage.
        backward: arithmetic of the backward pass, under the same conditions.

    Raises:
        ValueError: a value or combination that is not allowed; all of them are listed.
    """

    storage: torch.dtype | None = None
    forward: Arithmetic = "fp32"
    backward: Arithmetic = "fp32"

    def __post_init__(self) -> None:
        raise_faults(
            type(self).__name__,
            [
                choice_fault("storage", self.storage, (None, *STORAGE)),
                self._arithmetic_fault("forward", self.forward),
                self._arithmetic_fault("backward", self.backward),
            ],
        )

    def _arithmetic_fault(self, field: str, value: object) -> str | None:
        if fault := choice_fault(field, value, get_args(Arithmetic)):
            return fault
        if value == "fp8" and self.storage not in FLOAT8:
            return f"{field}='fp8' needs a float8 storage, found storage={self.storage}."
        if value != "fp32" and self.storage is None:
            return f"{field}={value!r} needs an explicit storage, found storage=None."
        return None


def unsupported_policy(policy: NeuronPolicy | None) -> str | None:
    """Says why the plain torch neurons cannot follow `policy`, and what to use instead; None when they can."""
    if policy is None:
        return None
    asked = []
    if policy.storage not in (None, torch.float32):
        asked.append(f"neuron_storage={_NAMES[policy.storage]!r}")
    if policy.forward != "fp32":
        asked.append(f"neuron_fwd={policy.forward!r}")
    if policy.backward != "fp32":
        asked.append(f"neuron_bwd={policy.backward!r}")
    if not asked:
        return None
    return (
        f"{', '.join(asked)} needs low-precision neuron kernels, which this version does not have: its neurons "
        "are plain torch with an FP32 membrane and FP32 arithmetic. Use neuron_storage=None or 'fp32' with "
        "neuron_fwd='fp32' and neuron_bwd='fp32'; layers may still run in a lower precision."
    )


def tau_fault(field: str, value: object) -> str | None:
    """Says what is wrong with a membrane time constant, in time steps; None when it is over 1 and finite."""
    fault = number_fault(field, value, above=1.0)
    return None if fault is None else f"{fault} It is a time constant in steps; for no leak use IFNode."


def firing_faults(
    v_threshold: object, v_reset: object, detach_reset: object, surrogate_function: object
) -> list[str | None]:
    """What is wrong with the arguments that all neurons share: one entry each, None where all is well."""
    reset_fault = None if v_reset is None else number_fault("v_reset", v_reset)
    return [
        number_fault("v_threshold", v_threshold),
        None if reset_fault is None else f"{reset_fault[:-1]} (hard reset), or None (soft reset).",
        bool_fault("detach_reset", detach_reset),
        _surrogate_fault(surrogate_function),
    ]


def _surrogate_fault(value: object) -> str | None:
    if isinstance(value, type):
        return f"surrogate_function={value.__name__}: needs an instance, write {value.__name__}()."
    if value is None or callable(value):
        return None
    return f"surrogate_function={value!r}: needs a callable such as surrogate.Sigmoid(), or None for that one."
