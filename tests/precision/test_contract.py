from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from torch import nn

from lightning_snnprec.precision import PrecisionConfig, device_profile, make_plan
from lightning_snnprec.precision.contract import NumericContract, contracts, save_contract
from lightning_snnprec.precision.sensitive import sensitive_paths
from tests.precision.models import spiking_net

CPU = device_profile("cpu")


@pytest.mark.parametrize("recipe", ["delayed", "current", "block", "mxfp8", "nvfp4"])
def test_every_converted_layer_and_every_neuron_has_a_whole_contract(recipe: str) -> None:
    config = PrecisionConfig.from_any({"mode": "fp8", "fp8_engine": "emulated", "fp8_recipe": recipe})
    net = spiking_net()
    found = contracts(net, config, make_plan(net, config, CPU))
    assert [(contract.module, contract.kind) for contract in found] == [
        ("0", "Linear"),
        ("1", "LIFNode"),
        ("2", "Linear"),
    ]
    for contract in found:
        assert all(contract.to_dict()[field.name] for field in fields(NumericContract))
    assert found[0].parameters == "float32, master weights"
    assert ("E2M1" in found[0].storage) == (recipe == "nvfp4")
    assert ("E5M2" in found[0].storage) == (recipe in ("delayed", "current"))
    assert found[1].accumulator == "fp32 forward, fp32 backward"


def test_contracts_of_16_bit_modes_cover_neurons_only() -> None:
    net, config = spiking_net(), PrecisionConfig("fp16")
    assert [contract.kind for contract in contracts(net, config, make_plan(net, config, CPU))] == ["LIFNode"]


def test_stochastic_rounding_is_in_the_contract() -> None:
    config = PrecisionConfig("fp8", fp8_engine="emulated", stochastic_rounding=True)
    net = nn.Linear(16, 16)
    (contract,) = contracts(net, config, make_plan(net, config, CPU))
    assert "stochastic" in contract.rounding
    assert "saved" in contract.rng


def test_a_contract_is_stored_as_json(tmp_path: Path) -> None:
    config = PrecisionConfig("fp8", fp8_engine="emulated")
    net = spiking_net()
    plan = make_plan(net, config, CPU)
    stored = json.loads(save_contract(net, config, plan, tmp_path).read_text())
    assert stored["digest"] == plan.digest
    assert [entry["module"] for entry in stored["contracts"]] == ["0", "1", "2"]
    assert [path.name for path in tmp_path.iterdir()] == ["contract.json"]


def test_sensitive_paths_are_run_and_warn_below_fp32() -> None:
    for config, dtype in ((PrecisionConfig("fp32"), "fp32"), (PrecisionConfig("bf16"), "bf16")):
        paths = {path.name: path for path in sensitive_paths(config, "cpu")}
        assert paths["residual sum"].dtype == dtype
        assert (paths["residual sum"].warning is None) == (dtype == "fp32")
        assert paths["cross-entropy"].dtype == "fp32"
        assert paths["gradient norm"].dtype == "fp32"
    with torch.autocast("cpu", torch.bfloat16):
        x = torch.zeros(2, 8, dtype=torch.bfloat16)
        assert (
            str(torch.softmax(x, -1).dtype)
            .removeprefix("torch.")
            .replace("bfloat16", "bf16")
            .replace("float32", "fp32")
            == {path.name: path.dtype for path in sensitive_paths(PrecisionConfig("bf16"), "cpu")}["softmax"]
        )
