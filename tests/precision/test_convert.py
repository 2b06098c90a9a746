"""Conversion keeps the model the user's: run on the stub engine, whose numerics are those of the plain layer."""

import copy
import io
import pickle
from typing import Any

import pytest
import torch
from torch import nn

from lightning_snnprec import prepare_model_for_precision, to_plain
from lightning_snnprec.precision import PrecisionConfig
from lightning_snnprec.precision.convert import converted_layers, engine_of
from lightning_snnprec.precision.layers import ConvertedConv1d, ConvertedLinear
from tests.precision.models import Adapter, Scaled, spiking_net
from tests.stub_engine import StubEngine

pytestmark = pytest.mark.usefixtures("stub_engine")
FP8 = PrecisionConfig("fp8", fp8_engine="emulated", fp8_fallback_dtype="fp32")


def test_what_belongs_to_a_layer_stays_its_own() -> None:
    layer = nn.Linear(32, 16).eval().requires_grad_(False)
    layer.tag = "x"  # type: ignore[assignment]
    seen: list[str] = []
    layer.register_forward_hook(lambda *_: seen.append("hook"))
    net = nn.Sequential(layer, nn.Linear(16, 16))
    kept = dict(net.named_parameters())
    x = torch.randn(5, 32)
    before = net(x)
    prepare_model_for_precision(net, "cpu", FP8)
    assert type(net[0]) is ConvertedLinear
    assert net[0] is layer
    assert all(parameter is kept[name] for name, parameter in net.named_parameters())
    assert (layer.training, layer.tag, layer.weight.requires_grad) == (False, "x", False)
    assert torch.equal(net(x), before)
    assert seen == ["hook", "hook"]


def test_frozen_weights_stay_bit_equal_while_others_train() -> None:
    net = spiking_net(32)
    net[0].requires_grad_(False)
    frozen, trained = net[0].weight.detach().clone(), net[2].weight.detach().clone()
    artifacts = prepare_model_for_precision(net, "cpu", FP8)
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    for _ in range(3):
        optimizer.zero_grad()
        with artifacts.autocast_context():
            loss = net(torch.rand(4, 3, 32) * 4).square().mean()
        artifacts.backward(loss, optimizer)
    assert torch.equal(net[0].weight, frozen)
    assert not torch.equal(net[2].weight, trained)


def test_the_root_itself_is_converted() -> None:
    root = nn.Linear(16, 16)
    assert prepare_model_for_precision(root, "cpu", FP8).model is root
    assert type(root) is ConvertedLinear
    assert type(to_plain(root)) is nn.Linear


def test_state_dict_is_the_same_in_every_mode() -> None:
    plain = nn.Sequential(Adapter(32), nn.Conv1d(5, 16, 1), Scaled(16, 16))
    shapes = {name: tensor.shape for name, tensor in plain.state_dict().items()}
    for config in ("fp32", "bf16", "fp16", FP8):
        net = copy.deepcopy(plain)
        prepare_model_for_precision(net, "cpu", config)
        assert {name: tensor.shape for name, tensor in net.state_dict().items()} == shapes
        net.load_state_dict(plain.state_dict(), strict=True)
        assert list(dict(net.named_parameters())) == list(dict(plain.named_parameters()))


def test_ties_stay_ties() -> None:
    net = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
    net[1].weight = net[0].weight
    artifacts = prepare_model_for_precision(net, "cpu", FP8)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        artifacts.backward(net(torch.randn(3, 16)).square().mean(), optimizer)
    assert net[0].weight is net[1].weight
    assert len(list(net.parameters())) == 3


def test_subclasses_stay_and_the_base_inside_a_wrapper_converts() -> None:
    net = nn.Sequential(Scaled(16, 16), Adapter(16))
    x = torch.randn(7, 16)
    before = net(x)
    artifacts = prepare_model_for_precision(net, "cpu", FP8)
    assert type(net[0]) is Scaled
    assert type(net[1].base) is ConvertedLinear
    assert torch.equal(net(x), before)
    assert "subclass" in artifacts.describe()["conversion_report"]["skipped"]["0"]


@pytest.mark.parametrize("shape", [(3, 5, 7), (5, 7)])
def test_pointwise_conv1d(shape: tuple[int, ...]) -> None:
    conv = nn.Conv1d(5, 6, 1)
    x = torch.randn(shape)
    before = conv(x)
    prepare_model_for_precision(conv, "cpu", FP8)
    assert type(conv) is ConvertedConv1d
    torch.testing.assert_close(conv(x), before)


def test_layers_without_bias_or_affine_get_none() -> None:
    net = nn.Sequential(
        nn.Linear(16, 16, bias=False),
        nn.LayerNorm(16, elementwise_affine=False),
        nn.LayerNorm(16, bias=False),
        nn.BatchNorm1d(16, affine=False),
    )
    prepare_model_for_precision(net, "cpu", FP8)
    assert list(dict(net.named_parameters())) == ["0.weight", "2.weight"]
    assert net(torch.randn(4, 16)).isfinite().all()


def test_preparing_twice_changes_nothing_and_keeps_the_engine() -> None:
    net = spiking_net(16)
    first = prepare_model_for_precision(net, "cpu", FP8)
    hooks = {name: len(module._forward_pre_hooks) for name, module in net.named_modules()}
    again = prepare_model_for_precision(net, "cpu", FP8)
    assert again.engine is first.engine
    assert again.plan.digest == first.plan.digest
    assert {name: len(module._forward_pre_hooks) for name, module in net.named_modules()} == hooks


def test_another_precision_takes_the_former_off() -> None:
    net = spiking_net(16)
    prepare_model_for_precision(net, "cpu", FP8)
    prepare_model_for_precision(net, "cpu", "bf16")
    assert not converted_layers(net)
    assert type(net[0]) is nn.Linear


def test_a_failure_half_way_leaves_the_model_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    net = spiking_net(16)
    before = [(type(module), dict(module.__dict__)) for module in net.modules()]

    def refuse_last(self: StubEngine, key: str, weight: torch.Tensor) -> None:
        if key == "2":
            raise MemoryError("out of memory")

    monkeypatch.setattr(StubEngine, "add_layer", refuse_last)
    with pytest.raises(MemoryError):
        prepare_model_for_precision(net, "cpu", FP8)
    assert [(type(module), dict(module.__dict__)) for module in net.modules()] == before


def test_loaded_weights_are_seeded_anew() -> None:
    net = spiking_net(16)
    engine = prepare_model_for_precision(net, "cpu", FP8).engine
    assert isinstance(engine, StubEngine)
    larger = {name: tensor * 100 for name, tensor in net.state_dict().items()}
    net.load_state_dict(larger)
    assert engine.weight_amax["0"] == larger["0.weight"].abs().amax()


def test_copy_and_pickle_after_a_step_take_the_engine_along() -> None:
    net = spiking_net(16)
    artifacts = prepare_model_for_precision(net, "cpu", FP8)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with artifacts.autocast_context():
        loss = net(torch.rand(4, 3, 16)).square().mean()
    artifacts.backward(loss, optimizer)
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        engine: Any = engine_of(twin)
        mine: Any = artifacts.engine
        assert engine is not mine
        assert engine.input_amax["0"].data_ptr() != mine.input_amax["0"].data_ptr()
        assert torch.equal(engine.input_amax["0"], mine.input_amax["0"])
        assert twin[0].weight.data_ptr() != net[0].weight.data_ptr()
        x = torch.rand(4, 3, 16)
        assert torch.equal(twin(x), net(x))


def test_to_plain_gives_the_users_classes_back() -> None:
    net = nn.Sequential(nn.Linear(16, 16), Scaled(16, 16), nn.Conv1d(3, 3, 1))
    types = [type(module) for module in net.modules()]
    attributes = [set(module.__dict__) for module in net.modules()]
    prepare_model_for_precision(net, "cpu", FP8)
    assert to_plain(net) is net
    assert [type(module) for module in net.modules()] == types
    assert [set(module.__dict__) for module in net.modules()] == attributes
    assert not any(module._forward_pre_hooks for module in net.modules())
    torch.save(net.state_dict(), io.BytesIO())


def test_parts_prepared_apart_are_told_apart() -> None:
    net = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16))
    prepare_model_for_precision(net[0], "cpu", FP8)
    prepare_model_for_precision(net[1], "cpu", FP8)
    with pytest.raises(RuntimeError, match="belong to 2 FP8 engines"):
        prepare_model_for_precision(net, "cpu", FP8)
