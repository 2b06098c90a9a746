"""What a classification batch has to be: a pair of inputs and integer labels that fit the network's output."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def labelled_pair(batch: Any) -> tuple[Tensor, Tensor]:
    """Inputs and labels of `batch`, a tuple or list of two tensors.

    Returns:
        `(x, y_B)`: x as it came, labels int64 `[B]` with B at least 1.

    Raises:
        ValueError: not a pair of tensors, labels that are not integers of shape [B], or no samples.
    """
    if not _is_pair(batch):
        raise ValueError(f"SNNClassifier: a batch must be a pair of tensors (x, y), got {_describe(batch)}.")
    x, y_B = batch
    if y_B.dim() != 1 or y_B.is_floating_point() or y_B.is_complex() or y_B.dtype == torch.bool:
        raise ValueError(
            f"SNNClassifier: labels must be integers of shape [B], got {_describe(y_B)}. One-hot labels: "
            "y.argmax(dim=1)."
        )
    if len(y_B) == 0:
        raise ValueError(
            "SNNClassifier: the batch has no samples (B = 0), so it has no mean loss. Leave empty batches out of "
            "the data loader."
        )
    return x, y_B.long()


def inputs_of(batch: Any) -> Tensor:
    """Inputs of `batch`, which is a tensor or a pair `(x, y)` whose y is ignored.

    Raises:
        ValueError: neither of them.
    """
    if isinstance(batch, Tensor):
        return batch
    if isinstance(batch, (tuple, list)) and len(batch) in (1, 2) and isinstance(batch[0], Tensor):
        return batch[0]
    raise ValueError(f"SNNClassifier: to predict, a batch must be a tensor x or a pair (x, y), got {_describe(batch)}.")


def check_labels(y_B: Tensor, num_classes: int) -> None:
    """Raises `ValueError` when a label is outside 0..num_classes-1; the host waits for the device to know."""
    low, high = (int(bound) for bound in torch.stack(torch.aminmax(y_B)).tolist())
    if low < 0 or high >= num_classes:
        raise ValueError(
            f"SNNClassifier: labels must be in 0..{num_classes - 1} (num_classes={num_classes}), found {low} to "
            f"{high}. Renumber the classes from 0, or raise num_classes."
        )


def check_logits(logits_BC: Tensor, y_B: Tensor, num_classes: int) -> None:
    """Raises `ValueError` when the network's output is not `[B, num_classes]` for the B labels."""
    if logits_BC.shape == (len(y_B), num_classes):
        return
    raise ValueError(
        f"SNNClassifier: {len(y_B)} labels and num_classes={num_classes} need logits of shape "
        f"[{len(y_B)}, {num_classes}], but the network gave {list(logits_BC.shape)}. Inputs are [T, B, ...], with "
        "time first."
    )


def _is_pair(batch: Any) -> bool:
    return isinstance(batch, (tuple, list)) and len(batch) == 2 and all(isinstance(b, Tensor) for b in batch)


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if isinstance(value, (tuple, list)):
        return f"{type(value).__name__}({', '.join(_describe(item) for item in value)})"
    return type(value).__name__
