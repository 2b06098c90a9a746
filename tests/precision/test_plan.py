import io

import pytest
import torch
from rich.console import Console
from torch import nn
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy

from lightning_snnprec.neurons import LIFNode
from lightning_snnprec.precision import ConversionPlan, PrecisionConfig, device_profile, make_plan
from tests.precision.models import Adapter, Scaled, spiking_net

H200 = device_profile("h200")
FP8 = PrecisionConfig("fp8")


def decisions(plan: ConversionPlan) -> dict[str, str]:
    return {row.name: row.decision for row in plan.rows}


def reason(plan: ConversionPlan, name: str) -> str:
    return next(row.reason for row in plan.rows if row.name == name)


def test_every_module_has_a_row() -> None:
    net = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), LIFNode(), nn.Linear(64, 10, bias=False), nn.Dropout(0.5))
    plan = make_plan(net, FP8, H200)
    assert [row.name for row in plan.rows] == ["", "0", "1", "2", "3", "4"]
    assert list(decisions(plan).values()) == ["container", "convert", "keep", "neuron", "convert", "keep"]
    assert "64 to 10 padded to 64 to 16 inside" in reason(plan, "3")
    assert plan.converted == ("0", "3")


def test_16_bit_modes_convert_nothing() -> None:
    plan = make_plan(spiking_net(), PrecisionConfig("bf16"), H200)
    assert decisions(plan) == {"": "container", "0": "autocast", "1": "neuron", "2": "autocast"}
    assert "computes in bf16 under autocast" in reason(plan, "0")
    assert decisions(make_plan(spiking_net(), PrecisionConfig("fp32"), H200))["0"] == "keep"


def test_without_padding_an_unaligned_layer_is_skipped_with_its_reason() -> None:
    plan = make_plan(spiking_net(), PrecisionConfig("fp8", pad_unaligned=False), H200)
    assert decisions(plan)["2"] == "skip"
    assert "64 to 10 is not a multiple of 16 and pad_unaligned is off; computes in bf16" in reason(plan, "2")


def test_only_exact_types_are_converted() -> None:
    tied = nn.Linear(32, 64)
    embedding = nn.Embedding(64, 32)
    tied.weight = embedding.weight
    normed = nn.utils.parametrizations.weight_norm(nn.Linear(32, 32))
    legacy = nn.utils.spectral_norm(nn.Linear(32, 32))
    replaced = nn.Linear(32, 32)
    replaced.forward = lambda x: x  # type: ignore[method-assign]
    net = nn.ModuleDict(
        {
            "subclass": Scaled(32, 32),
            "adapter": Adapter(32),
            "tied": tied,
            "embedding": embedding,
            "normed": normed,
            "legacy": legacy,
            "replaced": replaced,
            "attention": nn.MultiheadAttention(32, 2),
            "encoder": nn.TransformerEncoderLayer(32, 2, 64),
            "wide": nn.Linear(32, 32, dtype=torch.float64),
            "conv": nn.Conv1d(32, 32, 3),
            "pointwise": nn.Conv1d(32, 32, 1),
        }
    )
    plan = make_plan(net, FP8, H200)
    assert plan.converted == ("adapter.base", "pointwise")
    for name, told in {
        "subclass": "subclass of Linear",
        "tied": "shares a Parameter with embedding (Embedding)",
        "normed": "parametrized",
        "legacy": "weight is computed",
        "replaced": "forward was replaced on the instance",
        "attention.out_proj": "subclass of Linear",
        "encoder.linear1": "encoder (TransformerEncoderLayer) reads its weight without calling it",
        "wide": "its weight is float64",
        "conv": "only pointwise Conv1d",
    }.items():
        assert decisions(plan)[name] == "skip"
        assert told in reason(plan, name)


def test_tied_linears_are_both_converted() -> None:
    net = nn.ModuleDict({"enc": nn.Linear(32, 32), "dec": nn.Linear(32, 32)})
    net["dec"].weight = net["enc"].weight
    assert make_plan(net, FP8, H200).converted == ("enc", "dec")


def test_include_and_exclude_name_modules_or_what_holds_them() -> None:
    net = nn.ModuleDict({"body": spiking_net(), "head": nn.Linear(64, 64)})
    assert make_plan(net, PrecisionConfig("fp8", exclude=("head",)), H200).converted == ("body.0", "body.2")
    assert make_plan(net, PrecisionConfig("fp8", include=("body",)), H200).converted == ("body.0", "body.2")
    assert make_plan(net, PrecisionConfig("fp8", include=("body",), exclude=("*.2",)), H200).converted == ("body.0",)


def test_a_pattern_that_matches_nothing_is_an_error_with_near_names() -> None:
    net = nn.ModuleDict({"body": spiking_net(), "head": nn.Linear(64, 64)})
    with pytest.raises(ValueError, match="exclude pattern 'hed' matches no module; near names are 'head'"):
        make_plan(net, PrecisionConfig("fp8", exclude=("hed",)), H200)
    with pytest.raises(ValueError, match=r"include pattern 'xyz' matches no module; the names are body, body.0"):
        make_plan(net, PrecisionConfig("fp8", include=("xyz",)), H200)


def test_patterns_see_through_torch_compile() -> None:
    net = nn.ModuleDict({"body": torch.compile(spiking_net(), backend="eager"), "head": nn.Linear(64, 64)})
    assert make_plan(net, PrecisionConfig("fp8", include=("body.0",)), H200).converted == ("body._orig_mod.0",)


def test_digest_is_equal_for_equal_decisions_only() -> None:
    digest = make_plan(spiking_net(), FP8, H200).digest
    assert make_plan(spiking_net(), FP8, H200).digest == digest
    assert make_plan(spiking_net(classes=11), FP8, H200).digest != digest
    assert make_plan(spiking_net(), PrecisionConfig("fp8", fp8_recipe="current"), H200).digest != digest


def test_table_prints_each_decision() -> None:
    out = io.StringIO()
    Console(width=160, file=out).print(make_plan(spiking_net(), FP8, H200).table())
    text = out.getvalue()
    assert "fp8 (te, delayed): convert 2, neuron 1" in text
    assert [word in text for word in ("Linear", "LIFNode", "fp32 state")] == [True] * 3
    assert "Sequential" not in text


def test_planning_changes_nothing() -> None:
    net = spiking_net()
    before = {name: (type(module), set(module.__dict__)) for name, module in net.named_modules()}
    make_plan(net, FP8, H200)
    assert {name: (type(module), set(module.__dict__)) for name, module in net.named_modules()} == before


def test_metrics_of_a_lightning_module_are_no_part_of_the_plan() -> None:
    net = nn.ModuleDict({"body": spiking_net(), "accuracy": MetricCollection([MulticlassAccuracy(num_classes=3)])})
    assert [row.name for row in make_plan(net, FP8, H200).rows] == ["", "body", "body.0", "body.1", "body.2"]
