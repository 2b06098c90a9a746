"""Step time of a 3-layer spiking network through SNNPrecision against Lightning's own MixedPrecision.

Both train the same network in bf16 inside a Lightning Trainer, in turn within one process, so that only the ratio
counts; MixedPrecision against itself says how much of a ratio is noise.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.plugins.precision import MixedPrecision, Precision
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from typing_extensions import override

from lightning_snnprec.bench.quiet import quiet_lightning
from lightning_snnprec.bench.record import make_record, write_record
from lightning_snnprec.models import FCSNN
from lightning_snnprec.training.plugin import SNNPrecision

LIMIT = 1.05
_WARM_UP = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `snnprec bench overhead`."""
    parser.add_argument("--pairs", type=int, default=20, help="interleaved pairs (default 20)")
    parser.add_argument("--steps", type=int, default=60, help="timed steps of each run (default 60)")
    parser.add_argument("--width", type=int, default=128, help="hidden width (default 128)")
    parser.add_argument("--batch", type=int, default=64, help="batch size (default 64)")
    parser.add_argument("--time-steps", type=int, default=4, help="time steps T (default 4)")
    parser.add_argument("--output", type=Path, help="write a JSON record to this file")


def run(arguments: argparse.Namespace) -> int:
    """Measures, prints, and returns 1 when the median ratio is above 1.05."""
    results = measure(arguments.pairs, arguments.steps, arguments.width, arguments.batch, arguments.time_steps)
    print(
        f"step {results['ours_ms']:.3f} ms through SNNPrecision, {results['theirs_ms']:.3f} ms through MixedPrecision; "
        f"median ratio of {arguments.pairs} pairs {results['ratio']:.3f} "
        f"(MixedPrecision against itself {results['self_ratio']:.3f}); limit {LIMIT}"
    )
    if arguments.output is not None:
        write_record(arguments.output, make_record("overhead", results))
    return int(results["ratio"] > LIMIT)


def measure(pairs: int, steps: int, width: int, batch: int, time_steps: int) -> dict[str, float]:
    """Median step times in ms, and medians of the ratios within each round of three runs.

    Args:
        pairs: rounds; the order within a round rotates.
        steps: timed steps of one run.
        width: hidden width of the network.
        batch: batch size.
        time_steps: T.
    """
    device = "cuda" if torch.cuda.is_available() else "cpu"
    kinds = ("ours", "theirs", "again")
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    for round_ in range(pairs):
        for offset in range(len(kinds)):
            kind = kinds[(round_ + offset) % len(kinds)]
            plugin: Precision = SNNPrecision("bf16") if kind == "ours" else MixedPrecision("bf16-mixed", device)
            times[kind].append(_step_time(plugin, steps, width, batch, time_steps))
    ratios = [a / b for a, b in zip(times["ours"], times["theirs"], strict=True)]
    self_ratios = [a / b for a, b in zip(times["again"], times["theirs"], strict=True)]
    return {
        "ours_ms": 1e3 * statistics.median(times["ours"]),
        "theirs_ms": 1e3 * statistics.median(times["theirs"]),
        "ratio": statistics.median(ratios),
        "self_ratio": statistics.median(self_ratios),
    }


class _Training(pl.LightningModule):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.net = FCSNN(64, (width, width), 10, init_gain=8.0)  # at gain 1 nothing fires, and zeros are cheap

    @override
    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return nn.functional.cross_entropy(self.net(batch[0].transpose(0, 1)), batch[1])

    @override
    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class _Clock(pl.Callback):
    """Time from the end of the warm-up to the end of the last step, per step."""

    def __init__(self, steps: int) -> None:
        self._steps = steps
        self.seconds = 0.0

    @override
    def on_train_batch_end(self, trainer: pl.Trainer, *_: Any) -> None:
        if trainer.global_step in (_WARM_UP, _WARM_UP + self._steps):
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self.seconds = time.perf_counter() - self.seconds


def _step_time(plugin: Precision, steps: int, width: int, batch: int, time_steps: int) -> float:
    torch.manual_seed(0)
    samples = TensorDataset(torch.rand(batch, time_steps, 64) * 2, torch.randint(0, 10, (batch,)))
    loader = DataLoader(samples, batch_size=batch)
    clock = _Clock(steps)
    with quiet_lightning():
        trainer = pl.Trainer(
            accelerator="auto",
            devices=1,
            max_epochs=_WARM_UP + steps,
            plugins=plugin,
            callbacks=[clock],
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
        )
        trainer.fit(_Training(width), loader)
    return clock.seconds / steps
