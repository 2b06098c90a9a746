"""Two ranks on the CPU; prints JSON per rank. test_ddp.py runs it as a script, which Lightning starts once per rank."""

from __future__ import annotations

import json
import sys
import warnings

import lightning.pytorch as pl
import torch
from torch import Tensor, nn

from lightning_snnprec import SNNPrecision
from lightning_snnprec.neurons import LIFNode
from lightning_snnprec.precision import PrecisionConfig
from lightning_snnprec.precision.engines import ENGINES
from lightning_snnprec.precision.engines.emulated import EmulatedEngine
from lightning_snnprec.precision.engines.operands import ROLES
from tests.training.lit import Lit, loader

warnings.filterwarnings("ignore")


class Root(pl.LightningModule):
    """A LightningModule whose net is itself one nn.Linear."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(16, 3)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return nn.functional.cross_entropy(self.net(batch[0]).float(), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def module(case: str) -> pl.LightningModule:
    if case == "root":
        return Root()
    lit = Lit(net=nn.Sequential(nn.Linear(16, 16), LIFNode(), nn.Linear(16, 3)))
    if case == "overflow":

        class OneRank(Lit):
            def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
                loss = super().training_step(batch, batch_idx)
                return loss * float("inf") if self.global_rank == 1 and batch_idx == 1 else loss

        lit = OneRank()
    return lit


def main(case: str, strategy: str) -> None:
    torch.manual_seed(3)
    if case == "root":
        ENGINES["emulated"] = "tests.stub_engine:StubEngine"
    lit = module(case)
    config = "fp16" if case == "overflow" else PrecisionConfig("fp8", fp8_engine="emulated")
    run = pl.Trainer(
        accelerator="cpu",
        devices=2,
        strategy=strategy,
        max_epochs=1,
        plugins=SNNPrecision(config),
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    run.fit(lit, loader(80))
    plugin = run.precision_plugin
    assert isinstance(plugin, SNNPrecision)
    engine = plugin.artifacts.engine
    emulated = isinstance(engine, EmulatedEngine)
    result = {
        "histories": {role: engine.history("net.0", role).history[-5:].tolist() for role in ROLES}
        if emulated
        else None,
        "rank": run.global_rank,
        "digest": plugin.artifacts.plan.digest,
        "converted": list(plugin.artifacts.plan.converted),
        "optimizer_holds_them": {id(p) for g in run.optimizers[0].param_groups for p in g["params"]}
        == {id(p) for p in lit.parameters()},
        "skipped": plugin.skipped_steps,
        "scale": None if run.scaler is None else run.scaler.get_scale(),
        "weights": float(sum(p.detach().double().sum() for p in lit.parameters())),
        "steps": run.global_step,
    }
    print("RESULT " + json.dumps(result), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
