"""One's own samples for `snnprec predict`, from an .npz file."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset
from typing_extensions import override

from lightning_snnprec.config.errors import UserError

_KEY = "x"
_SHOWN = 5


class OwnSamples(LightningDataModule):
    """Samples of a file, coded over time as the recipe's data module codes its own.

    Args:
        path: .npz file whose `x` is `[N, ...]`, of the data module's `input_shape`, intensities in 0..1.
        like: the recipe's data module: batch size and coding are its own.

    Raises:
        UserError: the file is missing or is no .npz file, has no `x`, or `x` has another shape or dtype, no samples, or
            values that are not finite or outside 0..1; names the rows.
    """

    def __init__(self, path: Path, like: LightningDataModule) -> None:
        super().__init__()
        self._x_N = _checked(_read(path), tuple(getattr(like, "input_shape", ())), path)
        self._like = like

    @override
    def predict_dataloader(self) -> DataLoader[tuple[Tensor, ...]]:
        """Batches `(x_B, y_B)` in the file's order; the labels are unknown, -1."""
        unknown_N = torch.full((len(self._x_N),), -1)
        return DataLoader(TensorDataset(self._x_N, unknown_N), batch_size=getattr(self._like, "batch_size", 64))

    @override
    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Codes the batch as the recipe's data module does."""
        return self._like.on_after_batch_transfer(batch, dataloader_idx)


def _read(path: Path) -> np.ndarray[Any, Any]:
    try:
        with path.expanduser().open("rb") as file:
            content = np.load(file, allow_pickle=False)
            if not isinstance(content, np.lib.npyio.NpzFile):
                raise UserError(f"input={path} holds one bare array; save it by name, as np.savez(path, x=array)")
            if _KEY not in content.files:
                raise UserError(f"input={path} has no array named 'x'; it has {', '.join(content.files) or 'none'}")
            array: np.ndarray[Any, Any] = content[_KEY]
            return array
    except FileNotFoundError as error:
        raise UserError(f"input={path}: no such file") from error
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise UserError(
            f"input={path} is not an .npz file of plain numbers, as np.savez(path, x=array) writes"
        ) from error


def _checked(x_N: np.ndarray[Any, Any], shape: tuple[int, ...], path: Path) -> Tensor:
    wanted = f"[N, {', '.join(map(str, shape))}]" if shape else "[N, ...]"
    if x_N.ndim < 2 or (shape and x_N.shape[1:] != shape) or len(x_N) == 0:
        raise UserError(f"input={path}: x must be of shape {wanted} with N of at least 1, and is {list(x_N.shape)}")
    if x_N.dtype.kind not in "fiub":
        raise UserError(f"input={path}: x must hold numbers, and is of dtype {x_N.dtype}")
    rows_N = x_N.reshape(len(x_N), -1).astype(np.float32)
    bad = np.flatnonzero(~((rows_N >= 0) & (rows_N <= 1)).all(axis=1))
    if len(bad):
        shown = ", ".join(map(str, bad[:_SHOWN])) + (f" and {len(bad) - _SHOWN} more" if len(bad) > _SHOWN else "")
        nan = (
            "NaN or Inf" if not np.isfinite(rows_N[bad]).all() else f"values from {rows_N.min():g} to {rows_N.max():g}"
        )
        raise UserError(
            f"input={path}: x must hold intensities in 0..1, but {len(bad)} of {len(x_N)} rows have {nan}: {shown}"
        )
    return torch.from_numpy(x_N.astype(np.float32))
