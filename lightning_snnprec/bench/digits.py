"""Validation accuracy of the default recipe in each precision: means over seeds, on one fixed split."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from lightning_snnprec.bench.quiet import quiet_lightning
from lightning_snnprec.bench.record import make_record, write_record
from lightning_snnprec.config.compose import compose_recipe
from lightning_snnprec.training.build import build_run

LIMIT = 1.0
"""Points of accuracy by which a precision may differ from the first one."""
LIMIT_NVFP4 = 2.0
_OVERRIDES = ("trainer.enable_progress_bar=false", "trainer.enable_model_summary=false", "trainer.logger=false")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `snnprec bench digits`."""
    parser.add_argument(
        "--modes",
        nargs="+",
        default=["fp32", "bf16", "fp16"],
        help="options of the precision group; fp8_emulated+block sets its fp8_recipe",
    )
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (default 3)")
    parser.add_argument("--epochs", type=int, help="epochs instead of the recipe's own")
    parser.add_argument("--output", type=Path, help="write a JSON record to this file")


def run(arguments: argparse.Namespace) -> int:
    """Trains, prints a line per precision, and returns 1 when one is further than a point from FP32."""
    results = {mode: _measure(mode, arguments.seeds, arguments.epochs) for mode in arguments.modes}
    reference = results[arguments.modes[0]]["accuracy_percent"]
    for mode, found in results.items():
        print(
            f"{mode:22} accuracy {found['accuracy_percent']:.2f} % (seeds {found['per_seed_percent']}), "
            f"{found['accuracy_percent'] - reference:+.2f} points, firing rate {found['firing_rate']:.3f}, "
            f"{found['fit_seconds']:.1f} s of training"
        )
    if arguments.output is not None:
        write_record(arguments.output, make_record("digits", results))
    far = [mode for mode, found in results.items() if abs(found["accuracy_percent"] - reference) > _limit(mode)]
    for mode in far:
        print(f"{mode} is further than {_limit(mode)} points from {arguments.modes[0]}")
    return int(bool(far))


def _limit(mode: str) -> float:
    return LIMIT_NVFP4 if mode.endswith("nvfp4") else LIMIT


def _measure(mode: str, seeds: int, epochs: int | None) -> dict[str, Any]:
    runs = [_train(mode, seed, epochs) for seed in range(seeds)]
    return {
        "accuracy_percent": round(statistics.mean(run["accuracy"] for run in runs) * 100, 3),
        "per_seed_percent": [round(run["accuracy"] * 100, 2) for run in runs],
        "firing_rate": round(statistics.mean(run["firing_rate"] for run in runs), 4),
        "fit_seconds": round(statistics.median(run["seconds"] for run in runs), 2),
    }


def _train(mode: str, seed: int, epochs: int | None) -> dict[str, float]:
    option, _, recipe = mode.partition("+")
    overrides = [
        *_OVERRIDES,
        f"precision={option}",
        f"seed={seed}",
        "callbacks=none",
        "trainer.enable_checkpointing=false",
    ]
    if recipe:
        overrides.append(f"precision.fp8_recipe={recipe}")
    if epochs is not None:
        overrides.append(f"trainer.max_epochs={epochs}")
    with tempfile.TemporaryDirectory() as folder, quiet_lightning():
        built = build_run(compose_recipe(overrides), Path(folder))
        start = time.perf_counter()
        built.trainer.fit(built.module, built.data)
        seconds = time.perf_counter() - start
    metrics = built.trainer.callback_metrics
    return {"accuracy": metrics["val_acc"].item(), "firing_rate": metrics["val_firing_rate"].item(), "seconds": seconds}
