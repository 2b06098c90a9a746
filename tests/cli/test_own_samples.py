"""One's own samples: how they are read, checked and coded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from lightning_snnprec.cli.own_samples import OwnSamples
from lightning_snnprec.config.errors import UserError
from lightning_snnprec.data import DigitsDataModule, latency_coding


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.uint8, np.bool_])
def test_samples_come_in_order_coded_like_the_recipes_own(tmp_path: Path, dtype: type) -> None:
    x_NF = np.random.default_rng(torch.randint(2**31, ()).item()).integers(0, 2, (13, 64)).astype(dtype)
    np.savez(tmp_path / "mine.npz", x=x_NF)
    samples = OwnSamples(tmp_path / "mine.npz", DigitsDataModule(coding="latency", time_steps=3, batch_size=5))
    batches = list(samples.predict_dataloader())
    assert [len(x_BF) for x_BF, _ in batches] == [5, 5, 3]
    x_BF, y_B = samples.on_after_batch_transfer(batches[2], 0)
    expected = latency_coding(torch.from_numpy(x_NF[10:].astype(np.float32)), 3)
    assert torch.equal(x_BF, expected)
    assert y_B.tolist() == [-1, -1, -1]


HALF = np.full((7, 64), 0.5)
CASES = {
    "nan": (np.where(np.arange(7)[:, None] == 3, np.nan, HALF), "but 1 of 7 rows have NaN or Inf: 3"),
    "inf": (
        np.where(np.arange(7)[:, None] > 0, np.inf, HALF),
        "but 6 of 7 rows have NaN or Inf: 1, 2, 3, 4, 5 and 1 more",
    ),
    "range": (np.arange(9 * 64).reshape(9, 64) % 17, "9 of 9 rows have values from 0 to 16: 0, 1, 2, 3, 4 and 4 more"),
    "negative": (-HALF, "values from -0.5 to -0.5"),
    "shape": (np.zeros((7, 63)), "x must be of shape [N, 64] with N of at least 1, and is [7, 63]"),
    "flat": (np.zeros(64), "and is [64]"),
    "empty": (np.zeros((0, 64)), "and is [0, 64]"),
    "text": (np.full((7, 64), "a"), "x must hold numbers, and is of dtype <U1"),
    "complex": (np.zeros((7, 64), complex), "x must hold numbers, and is of dtype complex128"),
    "objects": (np.full((7, 64), None), "is not an .npz file of plain numbers"),
}


@pytest.mark.parametrize("name", CASES)
def test_samples_that_do_not_fit_are_told(tmp_path: Path, name: str) -> None:
    x_NF, told = CASES[name]
    path = tmp_path / "mine.npz"
    np.savez(path, x=x_NF)
    with pytest.raises(UserError) as caught:
        OwnSamples(path, DigitsDataModule())
    assert told in str(caught.value)
    assert str(path) in str(caught.value)


def test_files_that_do_not_fit_are_told(tmp_path: Path) -> None:
    np.savez(tmp_path / "nokey.npz", y=HALF)
    np.save(tmp_path / "bare.npy", HALF)
    (tmp_path / "junk.npz").write_text("junk")
    (tmp_path / "cut.npz").write_bytes((tmp_path / "nokey.npz").read_bytes()[:100])
    for name, told in {
        "gone.npz": "no such file",
        "nokey.npz": "has no array named 'x'; it has y",
        "bare.npy": "holds one bare array; save it by name, as np.savez(path, x=array)",
        "junk.npz": "is not an .npz file of plain numbers",
        "cut.npz": "is not an .npz file of plain numbers",
    }.items():
        with pytest.raises(UserError) as caught:
            OwnSamples(tmp_path / name, DigitsDataModule())
        assert told in str(caught.value)
