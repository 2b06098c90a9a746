import dataclasses
from typing import Any

import pytest
from omegaconf import OmegaConf

from lightning_snnprec.precision import LossScale, PrecisionConfig


def faults(**fields: Any) -> list[str]:
    with pytest.raises(ValueError, match="PrecisionConfig") as caught:
        PrecisionConfig.from_any(fields)
    return [line.strip() for line in str(caught.value).removeprefix("PrecisionConfig: ").splitlines()]


def test_defaults_are_those_of_the_documentation() -> None:
    assert PrecisionConfig().to_dict() == {
        "mode": "bf16",
        "fp8_engine": "te",
        "fp8_recipe": "auto",
        "fp8_fallback_dtype": "bf16",
        "amax_history_len": 1024,
        "amax_compute_algo": "max",
        "margin": 0,
        "pad_unaligned": True,
        "include": [],
        "exclude": [],
        "fp8_only_where_faster": False,
        "stochastic_rounding": False,
        "cuda_graph": False,
        "neuron_storage": None,
        "neuron_fwd": "fp32",
        "neuron_bwd": "fp32",
        "loss_scale": {"init": 65536.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000},
    }


def test_from_any_takes_all_that_a_user_may_hand_over() -> None:
    config = PrecisionConfig(mode="fp8", exclude=("head",))
    assert PrecisionConfig.from_any(None).mode == "bf16"
    assert PrecisionConfig.from_any("fp16").mode == "fp16"
    assert PrecisionConfig.from_any(config) is config
    assert PrecisionConfig.from_any({"mode": "fp8", "exclude": ["head"]}) == config
    assert PrecisionConfig.from_any(OmegaConf.create({"mode": "fp8", "exclude": ["head"]})) == config
    assert PrecisionConfig.from_any(config.to_dict()) == config
    with pytest.raises(TypeError, match="got int: 16"):
        PrecisionConfig.from_any(16)  # type: ignore[arg-type]


def test_a_config_is_frozen_and_hashable() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        PrecisionConfig().mode = "fp8"  # type: ignore[misc]
    assert hash(PrecisionConfig()) == hash(PrecisionConfig())
    assert dataclasses.replace(PrecisionConfig("fp16"), mode="fp32").mode == "fp32"


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"mode": "bf61"}, "mode='bf61' is not one of 'bf16', 'fp32', 'fp16', 'fp8'; did you mean 'bf16'?"),
        ({"mode": True}, "mode=True is not one of"),
        ({"mode": ["fp8"]}, "mode=['fp8'] is not one of"),
        ({"mdoe": "fp8"}, "unknown field 'mdoe'; did you mean mode"),
        (
            {"mode": "fp8", "fp8_engine": "TE"},
            "fp8_engine='TE' is not one of 'te', 'native', 'emulated'; did you mean 'te'?",
        ),
        ({"mode": "fp8", "amax_history_len": 0}, "amax_history_len=0 must be a whole number from 1"),
        ({"mode": "fp8", "amax_history_len": 16.0}, "amax_history_len=16.0 must be a whole number"),
        ({"mode": "fp8", "margin": -1}, "margin=-1 must be a whole number from 0 to 100"),
        ({"mode": "fp8", "pad_unaligned": "yes"}, "pad_unaligned='yes' must be true or false"),
        ({"mode": "fp8", "exclude": [1]}, "exclude=[1] must be a list of fnmatch patterns"),
        ({"exclude": ["head"]}, "exclude=('head',) needs mode='fp8'"),
        ({"mode": "fp16", "loss_scale": {"init": 1e39}}, "loss_scale.init=1e+39 must be a number from"),
        ({"fp8_recipe": "delayed"}, "fp8_recipe='delayed' needs mode='fp8', but mode is 'bf16'"),
        ({"mode": "fp16", "cuda_graph": True}, "cuda_graph=True needs mode='fp8'"),
        ({"mode": "fp8", "fp8_recipe": "current", "margin": 1}, "margin=1 is a setting of delayed scaling"),
        ({"mode": "fp8", "fp8_engine": "native", "fp8_recipe": "block"}, "does not exist for fp8_engine='native'"),
        ({"mode": "fp8", "cuda_graph": True}, "cuda_graph=True needs fp8_engine='native'"),
        ({"mode": "fp8", "fp8_engine": "emulated", "fp8_only_where_faster": True}, "needs a real engine"),
        ({"mode": "fp8", "stochastic_rounding": True}, "exists in Transformer Engine for fp8_recipe='nvfp4' only"),
        ({"loss_scale": {"init": 8}}, "loss_scale is a setting of fp16 gradients, but mode is 'bf16'"),
        ({"mode": "fp16", "loss_scale": {"init": 0}}, "loss_scale.init=0 must be a number from 2**-24 to 2**32"),
        (
            {"mode": "fp16", "loss_scale": {"growth": 3}},
            "loss_scale has no field 'growth'; did you mean 'growth_factor'?",
        ),
        ({"mode": "fp16", "loss_scale": 8}, "loss_scale=8 must be a mapping"),
        ({"neuron_fwd": "bf16"}, "neuron_fwd='bf16' needs neuron_storage, which is not set"),
        ({"neuron_storage": "bf16", "neuron_bwd": "fp8"}, "neuron_bwd='fp8' needs a float8 neuron_storage"),
        ({"neuron_storage": "e4m3"}, "neuron_storage='e4m3' is not one of None, 'fp32'"),
    ],
)
def test_a_fault_names_field_value_and_remedy(fields: dict[str, Any], told: str) -> None:
    found = faults(**fields)
    assert len(found) == 1
    assert told in found[0]


def test_all_faults_are_told_at_once() -> None:
    found = faults(mdoe="fp8", margin=-1, amax_compute_algo="mean", loss_scale={"init": -1, "growth_factor": 1})
    assert len(found) == 5
    assert len(faults(fp8_recipe="block", cuda_graph=True, neuron_bwd="fp16", loss_scale={"init": 8.0})) == 4


def test_older_names_mean_neuron_fields() -> None:
    older = PrecisionConfig.from_any({"triton_storage": "bf16", "triton_fwd": "bf16", "triton_bwd": "fp32"})
    assert older == PrecisionConfig(neuron_storage="bf16", neuron_fwd="bf16")
    assert PrecisionConfig(triton_storage="fp16").neuron_storage == "fp16"
    assert "is the older name of neuron_storage" in faults(triton_storage="bf16", neuron_storage="fp16")[0]


def test_loss_scale_keeps_what_was_not_given() -> None:
    config = PrecisionConfig(mode="fp16", loss_scale={"init": 8.0})  # type: ignore[arg-type]
    assert config.loss_scale == LossScale(init=8.0, growth_interval=2000)
    assert config.uses_loss_scale
    assert PrecisionConfig(mode="fp8", fp8_fallback_dtype="fp16").uses_loss_scale
    assert not PrecisionConfig(mode="fp8").uses_loss_scale
