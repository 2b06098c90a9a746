"""scikit-learn's 1,797 handwritten digits (8 x 8 pixels, 10 classes), which are on disk with the package."""

from __future__ import annotations

from typing import TypeAlias

import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset
from typing_extensions import override

from lightning_snnprec.arguments import bool_fault, choice_fault, int_fault, raise_faults
from lightning_snnprec.data.coding import CODINGS, Coding, encode
from lightning_snnprec.data.split import fraction_faults, stratified_split

Batch: TypeAlias = tuple[Tensor, ...]
MAX_PIXEL = 16


class DigitsDataModule(LightningDataModule):
    """Handwritten digits for classification, coded over time on the device.

    Source: E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits" (UCI, 1998), test part, as
    `sklearn.datasets.load_digits` has it. Pixels 0..16 become intensities in [0, 1]. A loader yields
    `(x_BF float32 [B, 64], y_B int64 [B])`; `on_after_batch_transfer`, which the Trainer calls once the batch
    is on its device, turns x into `[T, B, 64]` float32. The split is stratified and depends on `seed` and the
    two fractions alone. Poisson coding draws from torch's global generator, in validation too.

    Args:
        coding: "direct", "poisson" or "latency", see `lightning_snnprec.data.coding`.
        time_steps: T, at least 1.
        batch_size: samples per batch and process; the last batch is smaller (1 sample is possible).
        val_fraction: share of the samples that validates, in (0, 1).
        test_fraction: share of the samples that tests (and is predicted), in (0, 1); the sum stays below 1.
        seed: of the split, an int >= 0; the order of training batches follows torch's global generator.
        num_workers: loader processes; 0 loads in the main process, which is fastest for this size.
        pin_memory: page-locked batches, for faster copies; has no effect where there is no accelerator.
        drop_last: leave out the smaller last batch of the training set.

    Raises:
        ValueError: at construction, naming every bad argument.
    """

    def __init__(
        self,
        coding: Coding = "direct",
        time_steps: int = 4,
        batch_size: int = 64,
        val_fraction: float = 0.2,
        test_fraction: float = 0.1,
        seed: int = 0,
        num_workers: int = 0,
        *,
        pin_memory: bool = False,
        drop_last: bool = False,
    ) -> None:
        super().__init__()
        raise_faults(
            "DigitsDataModule",
            [
                choice_fault("coding", coding, CODINGS),
                int_fault("time_steps", time_steps, 1),
                int_fault("batch_size", batch_size, 1),
                *fraction_faults(val_fraction, test_fraction),
                int_fault("seed", seed, 0),
                int_fault("num_workers", num_workers, 0),
                bool_fault("pin_memory", pin_memory),
                bool_fault("drop_last", drop_last),
            ],
        )
        self.coding: Coding = coding
        self.time_steps = time_steps
        self.batch_size = batch_size
        self.val_fraction = val_fraction
        self.test_fraction = test_fraction
        self.seed = seed
        self.num_workers = num_workers
        self.pin_memory = pin_memory
        self.drop_last = drop_last
        self.save_hyperparameters()
        self._parts: dict[str, TensorDataset] = {}

    @property
    def num_classes(self) -> int:
        """Number of classes: 10."""
        return 10

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Shape of one sample at one time step: (64,)."""
        return (64,)

    @override
    def setup(self, stage: str | None = None) -> None:
        """Loads and splits the digits, once for all stages.

        Raises:
            ValueError: a pixel is not finite or not in 0..16, or the fractions leave a part without a class.
        """
        if self._parts:
            return
        pixels_NF, labels_N = load_digits()
        x_NF = scale_pixels(pixels_NF)
        split = stratified_split(labels_N, self.val_fraction, self.test_fraction, self.seed)
        self._parts = {name: TensorDataset(x_NF[rows], labels_N[rows]) for name, rows in split._asdict().items()}

    @override
    def train_dataloader(self) -> DataLoader[Batch]:
        """Shuffled training batches `(x_BF, y_B)`."""
        return self._loader("train", shuffle=True, drop_last=self.drop_last)

    @override
    def val_dataloader(self) -> DataLoader[Batch]:
        """Validation batches `(x_BF, y_B)`, in a fixed order."""
        return self._loader("val")

    @override
    def test_dataloader(self) -> DataLoader[Batch]:
        """Test batches `(x_BF, y_B)`, in a fixed order."""
        return self._loader("test")

    @override
    def predict_dataloader(self) -> DataLoader[Batch]:
        """The test batches: predictions come in the same order, with the labels beside them."""
        return self._loader("test")

    @override
    def on_after_batch_transfer(self, batch: Batch, dataloader_idx: int) -> Batch:
        """Codes the inputs over time: `([B, 64], [B])` to `([T, B, 64] float32, [B])`; labels pass."""
        x_BF, y_B = batch
        # Checked once, in setup: a check here would make the host wait for the device at every batch.
        return encode(x_BF, self.time_steps, self.coding, validate=False), y_B

    def _loader(self, part: str, *, shuffle: bool = False, drop_last: bool = False) -> DataLoader[Batch]:
        self.setup()
        return DataLoader(
            self._parts[part],
            batch_size=self.batch_size,
            shuffle=shuffle,
            drop_last=drop_last,
            num_workers=self.num_workers,
            pin_memory=self.pin_memory and torch.accelerator.is_available(),
        )


def load_digits() -> tuple[Tensor, Tensor]:
    """Reads the digits from scikit-learn's own files.

    Returns:
        `(pixels_NF, labels_N)`: pixels 0..16 as float32 `[1797, 64]`, labels 0..9 as int64 `[1797]`.
    """
    from sklearn.datasets import load_digits as sklearn_digits

    digits = sklearn_digits()
    return torch.from_numpy(digits.data).float(), torch.from_numpy(digits.target).long()


def scale_pixels(pixels: Tensor) -> Tensor:
    """Maps pixels 0..16 to intensities in [0, 1], exactly, as float32.

    Raises:
        ValueError: a pixel is NaN, Inf or outside 0..16; says how many there are and where the first one is.
    """
    # A comparison with NaN is false, so this finds NaN as well.
    bad = ~((pixels >= 0) & (pixels <= MAX_PIXEL))
    if bool(bad.any()):
        first = tuple(bad.nonzero()[0].tolist())
        raise ValueError(
            f"digits: {int(bad.sum())} of {pixels.numel()} pixels are not finite numbers in 0..{MAX_PIXEL}; "
            f"the first is {pixels[first].item():g} at {first}. The data files of scikit-learn seem to be "
            "damaged: reinstall it, or give clean data."
        )
    return pixels.float() / MAX_PIXEL
