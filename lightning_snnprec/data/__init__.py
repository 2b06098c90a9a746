"""Data modules, and the coding of intensities over time."""

from lightning_snnprec.data.coding import (
    CODINGS,
    Coding,
    direct_coding,
    encode,
    latency_coding,
    poisson_coding,
)
from lightning_snnprec.data.digits import DigitsDataModule
from lightning_snnprec.data.split import Split, stratified_split

__all__ = [
    "CODINGS",
    "Coding",
    "DigitsDataModule",
    "Split",
    "direct_coding",
    "encode",
    "latency_coding",
    "poisson_coding",
    "stratified_split",
]
