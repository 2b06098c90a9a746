"""Errors of a linear layer in each precision against FP64: output, both gradients, one optimizer update.

Inputs: normal, all zero, tiny, largest finite FP16 number in places, one outlier channel, and single NaN and Inf. For
the last two what counts is where non-finite values come out; `hidden` says that the engine counted them.
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from lightning_snnprec.bench.record import make_record, write_record
from lightning_snnprec.formats import BF16, E2M1, E4M3, FP16, FP32, FloatSpec, metrics
from lightning_snnprec.precision import PrecisionArtifacts, prepare_model_for_precision

_ROWS, _IN, _OUT, _TOP = 96, 80, 48, 5
_RECIPES = ("delayed", "current", "block", "mxfp8", "nvfp4")
_SPECS: dict[str, FloatSpec] = {"fp32": FP32, "bf16": BF16, "fp16": FP16, "nvfp4": E2M1}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `snnprec bench numerics`."""
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, help="write a JSON record to this file")


def run(arguments: argparse.Namespace) -> int:
    """Measures, prints a table per input, and returns 1 when an FP8 recipe made a finite input non-finite."""
    results = {case: measure(case, arguments.seed) for case in _CASES}
    console = Console(width=150)
    for case, rows in results.items():
        console.print(_table(case, rows))
    if arguments.output is not None:
        write_record(arguments.output, make_record("numerics", results))
    wrong = [
        f"{row['precision']} {row['quantity']} of {case} input"
        for case, rows in results.items()
        if case not in ("nan", "inf")
        for row in rows
        if row["precision"] in _RECIPES and row["non_finite"] > 0
    ]
    if wrong:
        print("not finite though the input is: " + ", ".join(wrong))
    return int(bool(wrong))


def measure(case: str, seed: int) -> list[dict[str, Any]]:
    """Rows of precision by quantity for one kind of input."""
    generator = torch.Generator().manual_seed(seed)
    layer = nn.Linear(_IN, _OUT)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * _IN**-0.5)
    x = _CASES[case](torch.randn(_ROWS, _IN, generator=generator))
    grad = torch.randn(_ROWS, _OUT, generator=generator)
    reference = _step(copy.deepcopy(layer).double(), x.double(), grad.double(), None)
    rows = []
    for name, config in _configs().items():
        twin = copy.deepcopy(layer)
        artifacts = prepare_model_for_precision(twin, "cpu", config)
        found = _step(twin, x, grad, artifacts)
        hidden = artifacts.engine is not None and bool(artifacts.engine.hidden_nonfinite())
        spec = _SPECS.get(name, E4M3)
        rows += [
            {"precision": name, "quantity": quantity, "hidden": hidden, **_errors(found[quantity], exact, spec)}
            for quantity, exact in reference.items()
        ]
    return rows


def _configs() -> dict[str, Any]:
    fp8 = {"mode": "fp8", "fp8_engine": "emulated", "fp8_fallback_dtype": "fp32"}
    return {mode: mode for mode in ("fp32", "bf16", "fp16")} | {r: {**fp8, "fp8_recipe": r} for r in _RECIPES}


def _step(layer: nn.Module, x: Tensor, grad: Tensor, artifacts: PrecisionArtifacts | None) -> dict[str, Tensor]:
    x = x.clone().requires_grad_()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    if artifacts is None:
        output = layer(x)
    else:
        with artifacts.autocast_context():
            output = layer(x)
    output.backward(grad.to(output.dtype))
    before = [parameter.detach().clone() for parameter in layer.parameters()]
    optimizer.step()
    moved = [now.detach() - then for now, then in zip(layer.parameters(), before, strict=True)]
    weight = layer.weight
    assert isinstance(weight, Tensor)
    assert weight.grad is not None
    assert x.grad is not None
    return {"output": output.detach(), "grad_input": x.grad, "grad_weight": weight.grad, "update": moved[0]}


def _errors(found: Tensor, exact: Tensor, spec: FloatSpec) -> dict[str, float]:
    found, exact = found.double(), exact.double()
    return {
        "absolute": float(metrics.absolute(found, exact)),
        "relative": float(metrics.relative(found, exact)),
        "ulp": float(metrics.ulp(found, exact, spec)),
        "sqnr_db": float(metrics.sqnr_db(found, exact)),
        "cosine": float(metrics.cosine(found, exact)),
        "top_k": float(metrics.topk_agreement(found, exact, _TOP)),
        "non_finite": int((~found.isfinite()).sum()),
    }


def _table(case: str, rows: list[dict[str, Any]]) -> Table:
    table = Table(title=f"input: {case}", title_justify="left")
    for heading in rows[0]:
        table.add_column(heading)
    for row in rows:
        table.add_row(*(f"{value:.3g}" if isinstance(value, float) else str(value) for value in row.values()))
    return table


def _outlier(x: Tensor) -> Tensor:
    x[:, 3] *= 1000
    return x


def _planted(value: float) -> Any:
    def plant(x: Tensor) -> Tensor:
        x[2, 5] = value
        return x

    return plant


_CASES: dict[str, Any] = {
    "normal": lambda x: x,
    "zero": torch.zeros_like,
    "tiny": lambda x: x * 2.0**-20,
    "largest": _planted(FP16.max),
    "outlier channel": _outlier,
    "nan": _planted(float("nan")),
    "inf": _planted(float("inf")),
}
