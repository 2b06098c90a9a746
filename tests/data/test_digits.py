from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn.datasets
import torch

from lightning_snnprec.data import CODINGS, DigitsDataModule, encode
from lightning_snnprec.data.digits import scale_pixels


def _all(loader: Any) -> tuple[torch.Tensor, torch.Tensor]:
    batches = list(loader)
    return torch.cat([x for x, _ in batches]), torch.cat([y for _, y in batches])


def _multiset(x: np.ndarray, y: np.ndarray) -> list[tuple[Any, ...]]:
    return sorted((*row.tolist(), label) for row, label in zip(x, y.tolist(), strict=True))


def test_the_three_parts_are_scikit_learns_digits() -> None:
    data = DigitsDataModule(batch_size=97)
    parts = [_all(loader) for loader in (data.train_dataloader(), data.val_dataloader(), data.test_dataloader())]
    pixels = torch.cat([x for x, _ in parts]).numpy() * 16
    labels = torch.cat([y for _, y in parts]).numpy()
    digits = sklearn.datasets.load_digits()
    assert _multiset(pixels, labels) == _multiset(digits.data, digits.target)
    assert [len(y) for _, y in parts] == [1259, 359, 179]
    assert parts[0][0].min() == 0
    assert parts[0][0].max() == 1


def test_shapes_dtypes_and_the_smaller_last_batch() -> None:
    data = DigitsDataModule(batch_size=67)
    batches = list(data.train_dataloader())
    assert [len(y) for _, y in batches] == [67] * 18 + [53]
    assert all(x.shape == (len(y), *data.input_shape) for x, y in batches)
    assert batches[0][0].dtype == torch.float32
    assert batches[0][1].dtype == torch.int64
    assert data.num_classes == len(torch.cat([y for _, y in batches]).unique())
    assert len(DigitsDataModule(batch_size=67, drop_last=True).train_dataloader()) == 18
    assert len(DigitsDataModule(batch_size=67, drop_last=True).val_dataloader()) == math.ceil(359 / 67)


def test_evaluation_order_is_fixed_and_prediction_is_the_test_set() -> None:
    data = DigitsDataModule(batch_size=50)
    for make in (data.val_dataloader, data.test_dataloader):
        assert torch.equal(_all(make())[0], _all(make())[0])
    assert torch.equal(_all(data.predict_dataloader())[0], _all(data.test_dataloader())[0])


def test_training_order_follows_torchs_seed_and_the_split_its_own(seed: int) -> None:
    def first_epoch(torch_seed: int, **fields: Any) -> torch.Tensor:
        data = DigitsDataModule(**fields)
        torch.manual_seed(torch_seed)
        return _all(data.train_dataloader())[0]

    reference = first_epoch(seed)
    assert torch.equal(reference, first_epoch(seed))
    reordered = first_epoch(seed + 1)
    assert not torch.equal(reference, reordered)
    assert _multiset(reference.numpy(), np.zeros(1259)) == _multiset(reordered.numpy(), np.zeros(1259))
    other_split = first_epoch(seed, seed=1)
    assert _multiset(reference.numpy(), np.zeros(1259)) != _multiset(other_split.numpy(), np.zeros(1259))


@pytest.mark.parametrize("coding", CODINGS)
def test_the_batch_is_coded_after_its_transfer(coding: Any, seed: int) -> None:
    data = DigitsDataModule(coding=coding, time_steps=6, batch_size=33)
    x_BF, y_B = next(iter(data.val_dataloader()))
    torch.manual_seed(seed)
    x_TBF, labels_B = data.on_after_batch_transfer((x_BF, y_B), 0)
    torch.manual_seed(seed)
    assert torch.equal(x_TBF, encode(x_BF, 6, coding))
    assert x_TBF.shape == (6, 33, 64)
    assert labels_B is y_B


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"coding": "latncy"},
            "coding='latncy': must be one of 'direct', 'poisson', 'latency'. Did you mean 'latency'",
        ),
        ({"coding": None}, "coding=None"),
        ({"time_steps": 0}, "time_steps=0: needs an int >= 1"),
        ({"time_steps": True}, "time_steps=True"),
        ({"batch_size": 0}, "batch_size=0: needs an int >= 1"),
        ({"batch_size": 64.0}, "batch_size=64.0"),
        ({"val_fraction": 0}, "val_fraction=0: needs a finite number > 0 and < 1"),
        ({"val_fraction": 0.5, "test_fraction": 0.5}, "their sum must be below 1"),
        ({"seed": None}, "seed=None: needs an int >= 0"),
        ({"num_workers": -1}, "num_workers=-1: needs an int >= 0"),
        ({"pin_memory": "yes"}, "pin_memory='yes': needs True or False"),
        ({"drop_last": 1}, "drop_last=1: needs True or False"),
    ],
)
def test_bad_arguments_are_named(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"DigitsDataModule: .*{message}"):
        DigitsDataModule(**fields)


def test_all_bad_arguments_are_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"(?s)3 arguments are wrong.*time_steps=0.*batch_size=-3.*seed=-1"):
        DigitsDataModule(time_steps=0, batch_size=-3, seed=-1)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -1.0, 17.0])
def test_damaged_pixels_are_refused_with_their_place(bad: float) -> None:
    pixels = torch.full((5, 64), 16.0)
    pixels[3, 9] = bad
    with pytest.raises(ValueError, match=rf"1 of 320 pixels .* in 0..16; the first is {bad:g} at \(3, 9\)"):
        scale_pixels(pixels)


def test_hyperparameters_are_plain_values(tmp_path: Path) -> None:
    data = DigitsDataModule(coding="poisson", time_steps=5)
    torch.save(dict(data.hparams), tmp_path / "hparams.pt")
    loaded = torch.load(tmp_path / "hparams.pt", weights_only=True)
    assert DigitsDataModule(**loaded).hparams == data.hparams
    assert loaded["coding"] == "poisson"


def test_scikit_learn_is_imported_only_when_data_is_read() -> None:
    code = (
        "import sys, lightning_snnprec.data.digits as d; "
        "before = 'sklearn.datasets' in sys.modules; d.load_digits(); "
        "sys.exit(before or 'sklearn.datasets' not in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
