"""Low-precision training of spiking neural networks with Lightning."""

from lightning_snnprec.precision import PrecisionArtifacts, PrecisionConfig, prepare_model_for_precision, to_plain
from lightning_snnprec.training.plugin import SNNPrecision
from lightning_snnprec.training.strategy import SNNDDPStrategy, SNNSingleDeviceStrategy, register_strategies

__version__ = "0.1.0"

__all__ = [
    "PrecisionArtifacts",
    "PrecisionConfig",
    "SNNDDPStrategy",
    "SNNPrecision",
    "SNNSingleDeviceStrategy",
    "prepare_model_for_precision",
    "to_plain",
]

register_strategies()
