"""Sensitive paths: operations whose sums lose meaning in 16 bits, and the dtype in which each runs here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from rich.table import Table
from torch import Tensor
from torch.nn import functional as F

from lightning_snnprec.precision.config import PrecisionConfig

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


def _cross_entropy(x: Tensor) -> Tensor:
    return F.cross_entropy(x, torch.zeros(len(x), dtype=torch.int64, device=x.device))


_RUN: dict[str, Callable[[Tensor], Tensor]] = {
    "norm reduction (layer_norm)": lambda x: F.layer_norm(x, (8,)),
    "softmax": lambda x: F.softmax(x, -1),
    "cross-entropy": _cross_entropy,
    "residual sum": lambda x: x + x,
}
_INSIDE_FP32 = "norm reduction (layer_norm)"


@dataclass(frozen=True)
class SensitivePath:
    """One operation.

    Args:
        name: what it is.
        dtype: dtype of its result, as run on the device, "fp32", "bf16" or "fp16".
        warning: what to mind, or None when it runs in FP32.
    """

    name: str
    dtype: str
    warning: str | None


def sensitive_paths(config: PrecisionConfig, device: torch.device | str) -> tuple[SensitivePath, ...]:
    """Runs each operation on a small tensor under the configuration's autocast and reports its dtype.

    Optimizer moments and the gradient norm follow the Parameters, which are FP32 in every mode.

    Args:
        config: the precision.
        device: where to run them; autocast keeps other operations in FP32 on a GPU than on a CPU.
    """
    device = torch.device(device)
    dtype = _DTYPES[config.autocast_dtype]
    found = []
    with torch.autocast(device.type, dtype=dtype, enabled=dtype != torch.float32):
        x = torch.zeros(2, 8, device=device, dtype=dtype)
        for name, run in _RUN.items():
            found.append(_path(name, run(x).dtype))
    return (*found, SensitivePath("optimizer moments", "fp32", None), SensitivePath("gradient norm", "fp32", None))


def _path(name: str, dtype: torch.dtype) -> SensitivePath:
    short = next(short for short, found in _DTYPES.items() if found == dtype)
    if short == "fp32":
        return SensitivePath(name, short, None)
    if name == _INSIDE_FP32:
        return SensitivePath(name, short, f"sums run in fp32 inside the kernel, the result is rounded to {short}")
    return SensitivePath(name, short, f"runs below fp32; call it on .float() if its sums are long (here {short})")


def sensitive_table(paths: tuple[SensitivePath, ...]) -> Table:
    """Paths as a table."""
    table = Table(title="Sensitive paths", title_justify="left")
    for heading in ("operation", "result", "mind"):
        table.add_column(heading, overflow="fold")
    for path in paths:
        table.add_row(path.name, path.dtype, path.warning or "")
    return table
