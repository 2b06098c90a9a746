from __future__ import annotations

from typing import Any

import pytest
import torch

from lightning_snnprec.training.batch import check_labels, check_logits, inputs_of, labelled_pair


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_integer_labels_become_int64_and_inputs_stay(dtype: torch.dtype) -> None:
    x, y = torch.rand(4, 3, 2), torch.tensor([2, 0, 1], dtype=dtype)
    inputs, labels = labelled_pair([x, y])
    assert inputs is x
    assert labels.dtype == torch.int64
    assert labels.tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (torch.rand(4, 3), r"must be a pair of tensors \(x, y\), got float32 \[4, 3\]"),
        ({"x": torch.rand(4, 3)}, "pair of tensors .* got dict"),
        ((torch.rand(4, 3),), r"got tuple\(float32 \[4, 3\]\)"),
        ([torch.rand(4, 3), [1, 2]], r"got list\(float32 \[4, 3\], list\(int, int\)\)"),
        ((torch.rand(4, 3, 2), torch.rand(3)), r"labels must be integers of shape \[B\], got float32 \[3\]"),
        ((torch.rand(4, 3, 2), torch.ones(3, dtype=torch.bool)), r"labels must be integers .* got bool \[3\]"),
        ((torch.rand(4, 3, 2), torch.eye(3).long()), r"got int64 \[3, 3\]. One-hot labels: y.argmax\(dim=1\)"),
        ((torch.rand(4, 0, 2), torch.empty(0, dtype=torch.long)), r"no samples \(B = 0\)"),
    ],
)
def test_bad_batches(batch: Any, message: str) -> None:
    with pytest.raises(ValueError, match=f"SNNClassifier: .*{message}"):
        labelled_pair(batch)


def test_inputs_alone_and_in_a_pair() -> None:
    x = torch.rand(4, 3, 2)
    for batch in (x, (x,), [x, torch.zeros(3)], (x, None)):
        assert inputs_of(batch) is x
    for batch in ({"x": x}, (), (x, x, x), ([1], x)):
        with pytest.raises(ValueError, match="to predict, a batch must be a tensor x or a pair"):
            inputs_of(batch)


@pytest.mark.parametrize(("labels", "found"), [([0, 10], "0 to 10"), ([-1, 3], "-1 to 3"), ([255], "255 to 255")])
def test_labels_outside_the_classes(labels: list[int], found: str) -> None:
    check_labels(torch.tensor([0, 9, 4]), 10)
    with pytest.raises(ValueError, match=rf"labels must be in 0..9 \(num_classes=10\), found {found}"):
        check_labels(torch.tensor(labels), 10)


@pytest.mark.parametrize("shape", [(4, 3, 10), (3, 9), (4, 10), (10,)])
def test_logits_that_do_not_fit(shape: tuple[int, ...]) -> None:
    check_logits(torch.rand(3, 10), torch.zeros(3), 10)
    with pytest.raises(ValueError, match=r"3 labels and num_classes=10 need logits of shape \[3, 10\], but"):
        check_logits(torch.rand(shape), torch.zeros(3), 10)
