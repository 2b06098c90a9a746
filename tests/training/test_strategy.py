from pathlib import Path

import pytest
import torch
from lightning.pytorch.strategies import StrategyRegistry

from lightning_snnprec import SNNDDPStrategy, SNNPrecision, SNNSingleDeviceStrategy
from lightning_snnprec.training.strategy import register_strategies
from tests.training.lit import Lit, loader, trainer


def test_strategies_are_found_by_name(tmp_path: Path) -> None:
    register_strategies()  # twice is as good as once
    assert {"snn", "snn_ddp"} <= set(StrategyRegistry.available_strategies())
    single = trainer(tmp_path, strategy="snn").strategy
    assert type(single) is SNNSingleDeviceStrategy
    assert single.root_device == torch.device("cpu")
    assert type(trainer(tmp_path, strategy="snn_ddp", devices=2).strategy) is SNNDDPStrategy


def test_by_name_the_strategy_takes_the_trainers_device() -> None:
    strategy = SNNSingleDeviceStrategy()
    assert strategy.parallel_devices == []
    strategy.parallel_devices = [torch.device("cuda:1")]
    assert strategy.root_device == torch.device("cuda:1")
    assert strategy.parallel_devices == [torch.device("cuda:1")]


def test_a_device_that_was_given_is_kept(tmp_path: Path) -> None:
    run = trainer(tmp_path, strategy=SNNSingleDeviceStrategy("cpu"), max_steps=1, plugins=SNNPrecision("bf16"))
    run.fit(Lit(), loader())
    assert run.strategy.root_device == torch.device("cpu")


def test_several_devices_are_refused_with_the_name_of_the_other_strategy(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="was given 2; use strategy='snn_ddp' or devices=1"):
        trainer(tmp_path, strategy="snn", devices=2)
