"""What a run tells about itself: metrics of spiking networks."""

from lightning_snnprec.telemetry.metrics import FiringRate, FiringRates

__all__ = ["FiringRate", "FiringRates"]
