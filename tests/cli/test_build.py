"""From a recipe to Trainer, module and data."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger

from lightning_snnprec import SNNPrecision, SNNSingleDeviceStrategy
from lightning_snnprec.config.compose import compose_recipe
from lightning_snnprec.config.location import group_options
from lightning_snnprec.data import DigitsDataModule
from lightning_snnprec.precision import PrecisionConfig
from lightning_snnprec.training.build import Run, build_run
from lightning_snnprec.training.module import SNNClassifier
from tests.cli.conftest import QUICK


def build(folder: Path, *overrides: str, command: str = "fit") -> Run:
    return build_run(compose_recipe([*QUICK, *overrides]), folder, command=command)


def weights(run: Run) -> dict[str, torch.Tensor]:
    return copy.deepcopy(run.module.state_dict())


def test_the_parts_are_those_of_the_recipe_and_nothing_is_written(tmp_path: Path) -> None:
    run = build(tmp_path / "run", "precision=fp16", "precision.loss_scale.init=1024.0", "data.batch_size=7")
    assert isinstance(run.module, SNNClassifier)
    assert isinstance(run.data, DigitsDataModule)
    assert run.data.batch_size == 7
    plugin = run.trainer.precision_plugin
    assert isinstance(plugin, SNNPrecision)
    assert plugin.config == run.precision == PrecisionConfig.from_any({"mode": "fp16", "loss_scale": {"init": 1024.0}})
    assert isinstance(run.trainer.strategy, SNNSingleDeviceStrategy)
    folders = [c.dirpath for c in run.trainer.checkpoint_callbacks if isinstance(c, ModelCheckpoint)]
    assert folders == [str(tmp_path / "run" / "checkpoints")] * 2
    assert isinstance(run.trainer.logger, CSVLogger)
    assert list(tmp_path.iterdir()) == []


def test_an_evaluation_has_no_logger(tmp_path: Path) -> None:
    assert build(tmp_path, command="test").trainer.logger is None


def test_weights_follow_the_seed(tmp_path: Path) -> None:
    first, same, other = (weights(build(tmp_path, f"seed={seed}")) for seed in (5, 5, 6))
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not any(torch.equal(first[name], other[name]) for name in first if name.endswith("weight"))


def test_without_a_seed_the_generators_are_left_alone(tmp_path: Path, seed: int) -> None:
    torch.manual_seed(seed)
    first = weights(build(tmp_path, "seed=null"))
    second = weights(build(tmp_path, "seed=null"))
    torch.manual_seed(seed)
    again = weights(build(tmp_path, "seed=null"))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["net.head.weight"], second["net.head.weight"])


@pytest.mark.parametrize("option", group_options("experiment"))
def test_an_experiment_trains(tmp_path: Path, option: str) -> None:
    run = build(tmp_path, f"experiment={option}")
    before = weights(run)
    run.trainer.fit(run.module, datamodule=run.data)
    after = run.module.state_dict()
    assert run.trainer.global_step == 2
    for name, value in after.items():
        assert torch.isfinite(value).all(), name
        assert not torch.equal(value, before[name]), name
    rate = float(run.trainer.callback_metrics["val_firing_rate"])
    assert 0.01 < rate < 0.6


def test_a_fault_of_the_program_is_no_user_error(tmp_path: Path) -> None:
    target = "+callbacks.faulty._target_=tests.cli.stopping.FaultyMaking"
    with pytest.raises(Exception, match="ZeroDivisionError") as caught:
        build(tmp_path, target, "allow_any_target=true")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
