"""GradScaler under Lightning: skips, schedules, clipping and several optimizers (field reports A05 and A06)."""

from collections.abc import Callable
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


def fp16(**scale: float) -> SNNPrecision:
    return SNNPrecision("fp16", loss_scale={"init": 8.0, "growth_interval": 1, **scale})


class Loop(Manual):
    """Two weights and a loop of the test's own."""

    def __init__(self, loop: Callable[[Manual, list[Any], int], None]) -> None:
        super().__init__(optimizers=2)
        self.loop = loop

    def training_step(self, batch: list[Tensor], batch_idx: int) -> None:  # type: ignore[override]
        self.loop(self, list(self.optimizers()), batch_idx)  # type: ignore[arg-type]


def backward(lit: Manual, index: int) -> None:
    lit.manual_backward((lit.weights[index] * 0.125).sum())


def one_accumulates(lit: Manual, optimizers: list[Any], batch_idx: int) -> None:
    """The second optimizer steps every fourth batch only."""
    backward(lit, 0)
    optimizers[0].step()
    optimizers[0].zero_grad()
    backward(lit, 1)
    if batch_idx % 4 == 3:
        optimizers[1].step()
        optimizers[1].zero_grad()


def critic_twice(lit: Manual, optimizers: list[Any], batch_idx: int) -> None:
    """Gradients are cleared before each backward, so that stale ones lie about."""
    for index in (0, 0, 1):
        optimizers[index].zero_grad()
        backward(lit, index)
        optimizers[index].step()


def cleared_in_place(lit: Manual, optimizers: list[Any], batch_idx: int) -> None:
    for index in (0, 1, 0):
        backward(lit, index)
        optimizers[index].step()
        optimizers[index].zero_grad(set_to_none=False)


def left_for_another(lit: Manual, optimizers: list[Any], batch_idx: int) -> None:
    """The first loss reaches the second optimizer's weight too, which clears that before its own backward."""
    lit.manual_backward((lit.weights[0] * 0.125 + lit.weights[1] * 3.0).sum())
    optimizers[0].step()
    optimizers[0].zero_grad()
    optimizers[1].zero_grad()
    backward(lit, 1)
    optimizers[1].step()
    optimizers[1].zero_grad()


@pytest.mark.parametrize(
    ("loop", "expected", "updates"),
    [
        (one_accumulates, [-0.5, -0.5], 2),
        (critic_twice, [-1.0, -0.5], 12),
        (cleared_in_place, [-1.0, -0.5], 12),
        (left_for_another, [-0.5, -0.5], 4),
    ],
)
def test_no_gradient_is_unscaled_by_another_scale(
    loop: Callable[[Manual, list[Any], int], None], expected: list[float], updates: int, tmp_path: Path
) -> None:
    lit = Loop(loop)
    run = trainer(tmp_path, max_epochs=1, plugins=fp16())
    run.fit(lit, loader(40))
    assert [weight.item() for weight in lit.weights] == expected
    assert run.scaler is not None
    assert run.scaler.get_scale() == 8.0 * 2**updates


def test_an_overflow_of_a_step_before_the_last_still_backs_the_scale_off(tmp_path: Path) -> None:
    def twice(lit: Manual, optimizers: list[Any], batch_idx: int) -> None:
        backward(lit, 1)
        lit.manual_backward((lit.weights[0] * INF).sum())
        optimizers[0].step()
        optimizers[0].zero_grad()
        backward(lit, 0)
        optimizers[0].step()
        optimizers[1].step()

    lit = Loop(twice)
    run = trainer(tmp_path, max_epochs=1, limit_train_batches=1, plugins=fp16())
    run.fit(lit, loader(10))
    assert [weight.item() for weight in lit.weights] == [-0.125, -0.125]
    assert run.scaler is not None
    assert run.scaler.get_scale() == 4.0
    assert run.precision_plugin.skipped_steps == 1


def test_a_step_past_the_scaler_is_refused(tmp_path: Path) -> None:
    def past(lit: Manual, optimizers: list[Any], batch_idx: int) -> None:
        backward(lit, 0)
        lit.optimizers(use_pl_optimizer=False)[0].step()  # type: ignore[index,union-attr]

    with pytest.raises(RuntimeError, match=r"SGD.step\(\) was called past the GradScaler"):
        trainer(tmp_path, max_steps=1, plugins=fp16()).fit(Loop(past), loader())


def test_an_optimizer_without_gradients_just_steps(tmp_path: Path) -> None:
    def none(lit: Manual, optimizers: list[Any], batch_idx: int) -> None:
        optimizers[1].step()
        backward(lit, 0)
        optimizers[0].step()
        optimizers[0].zero_grad()
        optimizers[1].step()

    lit = Loop(none)
    run = trainer(tmp_path, max_epochs=1, plugins=fp16())
    run.fit(lit, loader(40))
    assert [weight.item() for weight in lit.weights] == [-0.5, 0.0]


def test_hooks_are_gone_after_a_fit(tmp_path: Path) -> None:
    lit = Loop(cleared_in_place)
    run = trainer(tmp_path, max_epochs=1, plugins=fp16())
    run.fit(lit, loader(40))
    assert not any(getattr(weight, "_post_accumulate_grad_hooks", None) for weight in lit.weights)
    assert not any(optimizer._optimizer_step_pre_hooks for optimizer in run.optimizers)


@pytest.mark.parametrize("arguments", [{"log_every_n_steps": 0}, {"barebones": True}])
def test_no_logging_at_all(arguments: dict[str, Any], tmp_path: Path) -> None:
    unset = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"))
    chosen = {**unset, **arguments} if "barebones" in arguments else arguments
    run = trainer(tmp_path, max_steps=2, plugins=fp16(), **chosen)
    run.fit(Lit(), loader())
    assert run.global_step == 2
