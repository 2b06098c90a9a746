"""From a configuration to a prepared model: config, capability, plan, conversion, artifacts."""

from lightning_snnprec.precision.artifacts import PrecisionArtifacts
from lightning_snnprec.precision.capability import Facts, device_profile, probe, refusals
from lightning_snnprec.precision.config import PrecisionConfig
from lightning_snnprec.precision.convert import to_plain
from lightning_snnprec.precision.loss_scale import LossScale
from lightning_snnprec.precision.plan import ConversionPlan, PlanRow, make_plan
from lightning_snnprec.precision.prepare import prepare_model_for_precision

__all__ = [
    "ConversionPlan",
    "Facts",
    "LossScale",
    "PlanRow",
    "PrecisionArtifacts",
    "PrecisionConfig",
    "device_profile",
    "make_plan",
    "prepare_model_for_precision",
    "probe",
    "refusals",
    "to_plain",
]
