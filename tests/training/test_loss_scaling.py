"""GradScaler under Lightning: skips, schedules, clipping and several optimizers (field reports A05 and A06)."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor, nn

from lightning_snnprec import SNNPrecision
from tests.training.lit import Lit, loader, trainer

INF = float("inf")


class Scheduled(Lit):
    def __init__(self, interval: str = "step", **arguments: Any) -> None:
        super().__init__(**arguments)
        self.interval = interval

    def configure_optimizers(self) -> Any:
        optimizer = super().configure_optimizers()
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": self.interval}}


def test_a_step_schedule_is_held_on_skipped_steps(tmp_path: Path) -> None:
    lit = Scheduled(lr=0.1)
    lit.damage = {0: INF, 1: INF, 2: INF}
    run = trainer(tmp_path, max_steps=4, plugins=SNNPrecision("fp16"))
    run.fit(lit, loader())
    scheduler = run.lr_scheduler_configs[0].scheduler
    assert scheduler.last_epoch == 1
    assert scheduler.get_last_lr() == [0.05]
    assert run.precision_plugin.skipped_steps == 3
    assert run.global_step == 4
    assert run.lr_scheduler_configs[0].interval == "step"
    assert set(scheduler.state_dict()) == set(torch.optim.lr_scheduler.StepLR(run.optimizers[0], 1).state_dict())


def test_an_epoch_schedule_goes_on(tmp_path: Path) -> None:
    lit = Scheduled("epoch", lr=0.1)
    lit.damage = {0: INF, 3: INF}
    run = trainer(tmp_path, max_epochs=2, plugins=SNNPrecision("fp16"))
    run.fit(lit, loader())
    assert run.lr_scheduler_configs[0].scheduler.last_epoch == 2


def test_skips_and_scale_are_logged_and_other_callbacks_see_the_schedule(tmp_path: Path) -> None:
    lit = Scheduled(lr=0.1)
    lit.damage = {1: INF}
    run = trainer(
        tmp_path,
        max_steps=4,
        plugins=SNNPrecision("fp16", loss_scale={"init": 8.0}),
        logger=CSVLogger(tmp_path, version=0),
        callbacks=[LearningRateMonitor()],
        log_every_n_steps=1,
    )
    run.fit(lit, loader())
    rows = (tmp_path / "lightning_logs" / "version_0" / "metrics.csv").read_text().splitlines()
    columns = rows[0].split(",")
    logged = [dict(zip(columns, row.split(","), strict=True)) for row in rows[1:]]
    assert [float(r["precision/loss_scale"]) for r in logged if r["precision/loss_scale"]] == [8.0, 4.0, 4.0, 4.0]
    assert [float(r["precision/skipped_steps"]) for r in logged if r["precision/skipped_steps"]] == [0.0, 1.0, 1.0, 1.0]
    assert [float(r["lr-SGD"]) for r in logged if r["lr-SGD"]] == [0.1, 0.05, 0.05, 0.025]


def test_the_growth_of_the_scale_is_gradscalers_own(tmp_path: Path) -> None:
    lit = Lit()
    lit.damage = {6: INF, 13: INF}
    run = trainer(
        tmp_path, max_steps=20, plugins=SNNPrecision("fp16", loss_scale={"init": 1024.0, "growth_interval": 4})
    )
    run.fit(lit, loader(200))
    reference = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=4)
    parameter = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([parameter], lr=0.0)
    for step in range(20):
        reference.scale(parameter.sum() * (INF if step in (6, 13) else 1.0)).backward()
        reference.step(optimizer)
        reference.update()
        optimizer.zero_grad()
    assert run.scaler is not None
    assert run.scaler.state_dict() == reference.state_dict()


class Manual(Lit):
    """One weight per optimizer, true gradient 0.125 each step, manual optimisation."""

    order: tuple[str, ...] = ("backward0", "step0")
    clip: float | None = None

    def __init__(self, optimizers: int = 1) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.weights = nn.ParameterList([nn.Parameter(torch.zeros(1)) for _ in range(optimizers)])
        self.damaged: set[tuple[int, str]] = set()

    def training_step(self, batch: list[Tensor], batch_idx: int) -> None:  # type: ignore[override]
        chosen = self.optimizers()
        optimizers: list[Any] = chosen if isinstance(chosen, list) else [chosen]
        for word in self.order:
            action, index = word[:-1], int(word[-1])
            if action == "backward":
                factor = INF if (batch_idx, word) in self.damaged else 0.125
                self.manual_backward((self.weights[index] * factor).sum())
            elif action == "raw":
                (self.weights[index] * 0.125).sum().backward()
            else:
                if self.clip is not None:
                    self.clip_gradients(optimizers[index], self.clip, "norm")
                optimizers[index].step()
                optimizers[index].zero_grad()

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD([weight], lr=1.0) for weight in self.weights]


ORDERS = [
    ("backward0", "backward1", "step0", "step1"),
    ("backward0", "step0", "backward1", "step1"),
    ("backward0", "step0", "backward0", "step0", "backward1", "step1"),
    ("backward0", "step0", "backward1", "backward1", "step1", "backward0", "step0"),
]


@pytest.mark.parametrize("order", ORDERS)
def test_every_optimizer_gets_true_gradients_in_manual_optimisation(order: tuple[str, ...], tmp_path: Path) -> None:
    lit = Manual(optimizers=2)
    lit.order = order
    run = trainer(tmp_path, max_epochs=1, plugins=SNNPrecision("fp16", loss_scale={"init": 8.0, "growth_interval": 1}))
    run.fit(lit, loader(40))
    expected = [-0.125 * 4 * sum(word == f"backward{index}" for word in order) for index in range(2)]
    assert [weight.item() for weight in lit.weights] == expected


def test_the_scale_is_updated_once_an_iteration(tmp_path: Path) -> None:
    lit = Manual(optimizers=2)
    lit.order = ("backward0", "backward1", "step0", "step1")
    run = trainer(tmp_path, max_epochs=1, plugins=SNNPrecision("fp16", loss_scale={"init": 8.0, "growth_interval": 1}))
    run.fit(lit, loader(40))
    assert run.scaler is not None
    assert run.scaler.get_scale() == 8.0 * 2**4


def test_a_skip_of_one_optimizer_leaves_the_other_stepping(tmp_path: Path) -> None:
    lit = Manual(optimizers=2)
    lit.order = ("backward0", "backward1", "step0", "step1")
    lit.damaged = {(1, "backward0")}
    run = trainer(tmp_path, max_epochs=1, plugins=SNNPrecision("fp16", loss_scale={"init": 8.0}))
    run.fit(lit, loader(40))
    assert [weight.item() for weight in lit.weights] == [-0.375, -0.5]
    assert run.precision_plugin.skipped_steps == 1
    assert run.scaler is not None
    assert run.scaler.get_scale() == 4.0


def test_an_optimizer_that_steps_now_and_then(tmp_path: Path) -> None:
    class Alternating(Manual):
        def training_step(self, batch: list[Tensor], batch_idx: int) -> None:  # type: ignore[override]
            index = batch_idx % 2
            self.order = (f"backward{index}", f"step{index}")
            super().training_step(batch, batch_idx)

    lit = Alternating(optimizers=2)
    run = trainer(tmp_path, max_epochs=1, plugins=SNNPrecision("fp16", loss_scale={"init": 8.0, "growth_interval": 1}))
    run.fit(lit, loader(40))
    assert [weight.item() for weight in lit.weights] == [-0.25, -0.25]
    run.save_checkpoint(tmp_path / "x.ckpt")
    assert run.scaler is not None
    assert run.scaler.get_scale() == 8.0 * 2**4


@pytest.mark.parametrize("clip", [1.0, 0.0625])
@pytest.mark.parametrize("mode", ["fp32", "fp16"])
def test_manual_clipping_sees_true_gradients(mode: str, clip: float, tmp_path: Path) -> None:
    lit = Manual()
    lit.clip = clip
    trainer(tmp_path, max_epochs=1, plugins=SNNPrecision(mode)).fit(lit, loader(40))
    torch.testing.assert_close(lit.weights[0].detach(), torch.tensor([-4 * min(clip, 0.125)]), rtol=1e-5, atol=0)


def test_a_backward_past_the_scaler_is_refused(tmp_path: Path) -> None:
    lit = Manual()
    lit.order = ("raw0", "step0")
    with pytest.raises(RuntimeError, match=r"call self.manual_backward\(loss\) instead of loss.backward"):
        trainer(tmp_path, max_steps=1, plugins=SNNPrecision("fp16")).fit(lit, loader())


def test_stepping_twice_against_pending_gradients_is_refused(tmp_path: Path) -> None:
    lit = Manual(optimizers=2)
    lit.order = ("backward0", "backward1", "step0", "backward0", "step0", "step1")
    with pytest.raises(RuntimeError, match="SGD was stepped twice while another optimizer still holds gradients"):
        trainer(tmp_path, max_steps=1, plugins=SNNPrecision("fp16")).fit(lit, loader())
