from __future__ import annotations

import random

import numpy as np
import pytest
import torch

from lightning_snnprec.data import stratified_split


def _labels(seed: int) -> torch.Tensor:
    rng = random.Random(seed)
    labels = [label for label in (0, 1, 4, 9) for _ in range(rng.randrange(21, 80))]
    rng.shuffle(labels)
    return torch.tensor(labels)


def test_parts_are_disjoint_and_complete(seed: int) -> None:
    labels = _labels(seed)
    split = stratified_split(labels, 0.2, 0.1, seed)
    assert torch.equal(torch.cat(split).sort().values, torch.arange(len(labels)))
    for part in split:
        assert part.dtype == torch.int64
        assert torch.equal(part, part.sort().values)


def test_each_class_is_split_in_the_same_proportions(seed: int) -> None:
    labels = _labels(seed)
    split = stratified_split(labels, 0.31, 0.17, seed)
    for label in (0, 1, 4, 9):
        n = int((labels == label).sum())
        n_val, n_test = round(0.31 * n), round(0.17 * n)
        counts = [int((labels[part] == label).sum()) for part in split]
        assert counts == [n - n_val - n_test, n_val, n_test]


def test_the_seed_alone_decides(seed: int) -> None:
    labels = _labels(seed)
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = stratified_split(labels, 0.2, 0.1, seed)
    assert torch.equal(torch.get_rng_state(), torch_state)
    assert np.array_equal(np.random.get_state()[1], numpy_state)  # noqa: NPY002
    torch.manual_seed(seed + 1)
    again = stratified_split(labels, 0.2, 0.1, seed)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    other = stratified_split(labels, 0.2, 0.1, seed + 1)
    assert not torch.equal(first.val, other.val)


def test_the_same_in_every_process() -> None:
    labels = torch.arange(30) % 3
    split = stratified_split(labels, 0.2, 0.1, 0)
    assert split.val.tolist() == [1, 3, 11, 13, 20, 21]
    assert split.test.tolist() == [2, 15, 25]


@pytest.mark.parametrize(
    ("val", "test", "seed_", "message"),
    [
        (0.0, 0.1, 0, "val_fraction=0.0: needs a finite number > 0 and < 1"),
        (0.1, 1.0, 0, "test_fraction=1.0"),
        (True, 0.1, 0, "val_fraction=True"),
        ("0.1", 0.1, 0, "val_fraction='0.1'"),
        (float("nan"), 0.1, 0, "val_fraction=nan"),
        (0.6, 0.4, 0, "sum must be below 1"),
        (0.1, 0.1, -1, "seed=-1: needs an int >= 0"),
        (0.1, 0.1, True, "seed=True"),
        (0.01, 0.1, 0, "class 0 has 10 samples.*leave 9 to train, 0 to validate and 1 to test"),
        (0.55, 0.44, 0, "class 0 has 10 samples.*leave 0 to train, 6 to validate and 4 to test"),
    ],
)
def test_bad_arguments(val: object, test: object, seed_: object, message: str) -> None:
    labels = torch.arange(30) % 3
    with pytest.raises(ValueError, match=f"(?s)stratified_split: .*{message}"):
        stratified_split(labels, val, test, seed_)  # type: ignore[arg-type]


def test_no_labels() -> None:
    with pytest.raises(ValueError, match="labels is empty"):
        stratified_split(torch.empty(0, dtype=torch.int64), 0.2, 0.1, 0)
