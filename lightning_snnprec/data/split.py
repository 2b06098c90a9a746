"""Stratified, seeded splits that come out the same in every process and with every version of NumPy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lightning_snnprec.arguments import int_fault, number_fault, raise_faults


class Split(NamedTuple):
    """Positions of the samples of each part, int64, ascending; disjoint, and together all samples."""

    train: Tensor
    val: Tensor
    test: Tensor


def fraction_faults(val_fraction: object, test_fraction: object) -> list[str | None]:
    """Says what is wrong with the two fractions: each in (0, 1), and something left to train on."""
    faults = [
        number_fault("val_fraction", val_fraction, above=0, below=1),
        number_fault("test_fraction", test_fraction, above=0, below=1),
    ]
    if faults == [None, None] and val_fraction + test_fraction >= 1:  # type: ignore[operator]
        faults.append(
            f"val_fraction={val_fraction!r} and test_fraction={test_fraction!r}: their sum must be below 1, "
            "or nothing is left to train on."
        )
    return faults


def stratified_split(labels: Tensor, val_fraction: float, test_fraction: float, seed: int) -> Split:
    """Splits every class in the same proportions.

    Each class is put in an order drawn from PCG64(seed), whose raw stream NumPy promises not to change; of
    its n samples the first round(n * val_fraction) validate, the next round(n * test_fraction) test, and the
    rest train. Neither torch's nor NumPy's global generator is read.

    Args:
        labels: class of each sample, `[N]`, integer.
        val_fraction: share of each class that validates, in (0, 1).
        test_fraction: share of each class that tests, in (0, 1).
        seed: any int >= 0.

    Returns:
        The positions of the three parts.

    Raises:
        ValueError: no labels, a bad fraction or seed, or a class too small to be in all three parts.
    """
    raise_faults("stratified_split", [*fraction_faults(val_fraction, test_fraction), int_fault("seed", seed, 0)])
    if labels.numel() == 0:
        raise ValueError("stratified_split: labels is empty; there are no samples to split.")
    draws = np.random.PCG64(seed).random_raw(len(labels))
    order = torch.from_numpy(np.argsort(draws, kind="stable"))
    parts: tuple[list[Tensor], list[Tensor], list[Tensor]] = ([], [], [])
    for label in torch.unique(labels).tolist():
        members = order[labels[order] == label]
        sizes = _sizes(len(members), val_fraction, test_fraction)
        if min(sizes) < 1:
            raise ValueError(
                f"stratified_split: class {label} has {len(members)} samples; val_fraction={val_fraction!r} "
                f"and test_fraction={test_fraction!r} leave {sizes[0]} to train, {sizes[1]} to validate and "
                f"{sizes[2]} to test. Every part needs a sample of every class: change the fractions."
            )
        val, test, train = torch.split(members, [sizes[1], sizes[2], sizes[0]])
        for part, chosen in zip(parts, (train, val, test), strict=True):
            part.append(chosen)
    return Split(*(torch.cat(part).sort().values for part in parts))


def _sizes(members: int, val_fraction: float, test_fraction: float) -> tuple[int, int, int]:
    val, test = round(members * val_fraction), round(members * test_fraction)
    return max(members - val - test, 0), val, min(test, members - val)
