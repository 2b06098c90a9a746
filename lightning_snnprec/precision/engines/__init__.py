"""FP8 engines: one protocol, one module per engine, and the table by which they are found."""

from lightning_snnprec.precision.engines.protocol import Engine, GradSlot, LayerKey
from lightning_snnprec.precision.engines.registry import ENGINES, engine_class

__all__ = ["ENGINES", "Engine", "GradSlot", "LayerKey", "engine_class"]
