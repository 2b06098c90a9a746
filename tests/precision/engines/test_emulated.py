"""The emulated engine against the formats it is made of, and the field reports that touch FP8."""

from __future__ import annotations

import copy
import io
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from lightning_snnprec import PrecisionArtifacts, SNNPrecision, prepare_model_for_precision, to_plain
from lightning_snnprec.formats import BLOCK_1X128, BLOCK_128X128, E4M3, E5M2, quantize_blocks, quantize_current
from lightning_snnprec.neurons import LIFNode
from lightning_snnprec.precision.engines.emulated import EmulatedEngine
from tests.precision.models import Adapter, Scaled
from tests.training.lit import Lit, loader, trainer

RECIPES = ("delayed", "current", "block", "mxfp8", "nvfp4")


def prepared(net: nn.Module, recipe: str = "delayed", **fields: Any) -> tuple[PrecisionArtifacts, EmulatedEngine]:
    config = {"mode": "fp8", "fp8_engine": "emulated", "fp8_recipe": recipe, "fp8_fallback_dtype": "fp32", **fields}
    artifacts = prepare_model_for_precision(net, "cpu", config)
    assert isinstance(artifacts.engine, EmulatedEngine)
    return artifacts, artifacts.engine


def train(artifacts: PrecisionArtifacts, inputs: list[Tensor], lr: float = 0.01) -> list[float]:
    optimizer = torch.optim.SGD(artifacts.model.parameters(), lr=lr)
    losses = []
    for x in inputs:
        optimizer.zero_grad()
        with artifacts.autocast_context():
            loss = artifacts.model(x).float().square().mean()
        artifacts.backward(loss, optimizer)
        losses.append(loss.item())
    return losses


def same(a: Any, b: Any) -> bool:
    """Whether two nested states are equal to the bit."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return torch.equal(a, b) if isinstance(a, Tensor) else bool(a == b)


def gradients(layer: nn.Module, x: Tensor, grad: Tensor) -> tuple[Tensor, ...]:
    y = layer(x)
    return (y.detach(), *torch.autograd.grad(y, [x, *layer.parameters()], grad))


def test_current_scaling_is_the_formats_own_casts_around_fp32_gemms() -> None:
    layer = nn.Linear(37, 21)
    x, g = torch.randn(5, 11, 37, requires_grad=True), torch.randn(5, 11, 21)
    prepared(layer, "current")
    y, dx, dw, db = gradients(layer, x, g)
    qx, qw = quantize_current(x, E4M3).restored, quantize_current(layer.weight, E4M3).restored
    qg = quantize_current(g, E5M2).restored
    torch.testing.assert_close(y, qx @ qw.t() + layer.bias, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(dx, qg @ qw, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(dw, qg.flatten(0, 1).t() @ qx.flatten(0, 1), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(db, g.sum((0, 1)), rtol=1e-5, atol=1e-5)


def test_block_scaling_blocks_run_along_the_contracted_dimension() -> None:
    layer = nn.Linear(256, 128, bias=False)
    x, g = (torch.randn(128, 256) * torch.rand(128, 1).exp2() ** 8).requires_grad_(), torch.randn(128, 128)
    prepared(layer, "block")
    y, dx, dw = gradients(layer, x, g)
    qw = quantize_blocks(layer.weight, BLOCK_128X128).restored
    torch.testing.assert_close(y, quantize_blocks(x, BLOCK_1X128).restored @ qw.t(), rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(dx, quantize_blocks(g, BLOCK_1X128).restored @ qw, rtol=1e-5, atol=1e-4)
    qg_t, qx_t = (quantize_blocks(t.t(), BLOCK_1X128).restored for t in (g, x))
    torch.testing.assert_close(dw, qg_t @ qx_t.t(), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("recipe", RECIPES)
def test_numbers_that_a_format_holds_come_through_exactly(recipe: str) -> None:
    """Spikes and small powers of two lose nothing but in FP4's Hadamard-transformed weight gradient."""
    layer = nn.Linear(64, 32, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.randint(-1, 2, (32, 64)).float())
    x = (torch.rand(48, 64) > 0.7).float().requires_grad_()
    g = torch.randint(-1, 2, (48, 32)).float()
    plain = gradients(copy.deepcopy(layer), x, g)
    prepared(layer, recipe)
    y, dx, dw = gradients(layer, x, g)
    assert torch.equal(y, plain[0])
    assert torch.equal(dx, plain[1])
    if recipe == "nvfp4":
        assert torch.nn.functional.cosine_similarity(dw.flatten(), plain[2].flatten(), dim=0) > 0.99
    else:
        assert torch.equal(dw, plain[2])


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("out", [2, 10, 110, 1000])
@pytest.mark.parametrize(("features", "rows"), [(64, (4, 40)), (100, (3, 50)), (100, (1, 15))])
def test_any_size_trains_near_fp32(recipe: str, out: int, features: int, rows: tuple[int, int]) -> None:
    """Heads of 2, 10, 110, 1000 classes and any number of rows (field report A03)."""
    head = nn.Linear(features, out)
    x, g = torch.randn(*rows, features, requires_grad=True), torch.randn(*rows, out)
    plain = gradients(copy.deepcopy(head), x, g)
    artifacts, _ = prepared(head, recipe)
    for mine, reference in zip(gradients(head, x, g), plain, strict=True):
        error = (mine - reference).norm() / reference.norm()
        assert error < (0.25 if recipe == "nvfp4" else 0.08)
    rows_of_report = artifacts.describe()["conversion_report"]["rows"]
    assert len(rows_of_report) == 1
    assert "a simulation, not an FP8 GEMM" in artifacts.describe()["conversion_report"]["gemms"][""]
    assert "simulation" in rows_of_report[0]["reason"]


@pytest.mark.parametrize("recipe", RECIPES)
def test_silent_layers_give_exact_zeros_and_usable_scales(recipe: str) -> None:
    """An all-zero spike tensor, then tiny numbers, then spikes (field report A04)."""
    net = nn.Sequential(nn.Linear(32, 32), LIFNode(v_threshold=1e9), nn.Linear(32, 16, bias=False))
    artifacts, engine = prepared(net, recipe)
    losses = train(artifacts, [torch.rand(4, 8, 32) for _ in range(5)])
    assert losses == [0.0] * 5
    assert all(parameter.isfinite().all() for parameter in net.parameters())
    net[1].v_threshold = 0.01
    assert sum(train(artifacts, [torch.rand(4, 8, 32) for _ in range(5)])) > 0
    with artifacts.autocast_context():
        assert net[2](torch.full((8, 32), 1e-42)).isfinite().all()
    if recipe == "delayed":
        for role in ("input", "weight", "grad_output"):
            assert engine.history("2", role).scale.isfinite()
        assert engine.history("2", "input").scale == 448.0


def test_delayed_scaling_uses_the_amax_of_earlier_steps_and_saturates_when_it_lags() -> None:
    layer = nn.Linear(16, 16, bias=False)
    nn.init.eye_(layer.weight)
    artifacts, engine = prepared(layer, "delayed", amax_history_len=4)
    train(artifacts, [torch.full((2, 16), 2.0)], lr=0.0)
    assert engine.history("", "input").scale == 448.0 / 2.0
    with artifacts.autocast_context():
        assert torch.equal(layer(torch.full((2, 16), 8.0)), torch.full((2, 16), 2.0))
    train(artifacts, [torch.full((2, 16), 8.0)], lr=0.0)
    assert engine.history("", "input").scale == 448.0 / 8.0
    assert engine.history("", "input").history.tolist() == [0.0, 0.0, 2.0, 8.0]
    train(artifacts, [torch.full((2, 16), 1.0)] * 4, lr=0.0)
    assert engine.history("", "input").scale == 448.0


def test_evaluation_leaves_no_trace() -> None:
    net = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 4))
    artifacts, engine = prepared(net)
    train(artifacts, [torch.rand(3, 16)])
    before = engine.state()
    with artifacts.autocast_context(), torch.no_grad():
        net(torch.rand(3, 16) * 100)
    net.eval()
    with artifacts.autocast_context(), torch.inference_mode():
        net(torch.rand(3, 16) * 100)
    net.train()
    assert same(engine.state(), before)
    assert train(artifacts, [torch.rand(3, 16)])[0] > 0


def test_accumulation_keeps_the_largest_amax_and_the_weights_follow_each_step() -> None:
    """Micro-batch 1 has amax 10, the others 0.1; the gradient is that of one big batch (field report A12)."""
    net = nn.Linear(16, 16, bias=False)
    artifacts, engine = prepared(net, amax_history_len=4, amax_compute_algo="most_recent")
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001)
    micro = [torch.full((4, 16), 10.0), *(torch.full((4, 16), 0.1) for _ in range(3))]
    for step in range(2):
        before = net.weight.detach().clone()
        for index, x in enumerate(micro):
            with artifacts.autocast_context():
                loss = net(x).sum() / 4
            artifacts.backward(loss, optimizer, step_optimizer=index == 3)
        assert engine.history("", "input").amax == 10.0, step
        optimizer.zero_grad()
        with artifacts.autocast_context():
            moved = net(torch.eye(16)).t()
        assert not torch.equal(net.weight, before)
        # two casts to 3 mantissa bits, of weight and input, each off by at most 2**-4
        assert (moved - net.weight).abs().max() <= net.weight.abs().max() * 2**-3
    one, parts = nn.Linear(16, 16, bias=False), torch.randn(16, 16)
    prepared(one, "block")
    one(parts).sum().backward()
    big = one.weight.grad
    one.weight.grad = None
    for part in parts.split(4):
        one(part).sum().backward()
    assert big is not None
    torch.testing.assert_close(one.weight.grad, big, rtol=0.1, atol=0.1)


def test_loaded_weights_get_their_own_scale() -> None:
    """Weights 100 times larger than those the layer was converted with (field report A11)."""
    net = nn.Linear(64, 64)
    artifacts, _ = prepared(net)
    train(artifacts, [torch.rand(8, 64)])
    larger = {name: tensor * 100 for name, tensor in net.state_dict().items()}
    net.load_state_dict(larger)
    x = torch.rand(8, 64)
    reference = nn.functional.linear(x, larger["weight"], larger["bias"])
    with artifacts.autocast_context():
        assert (net(x) - reference).norm() / reference.norm() < 0.05


def test_weights_changed_in_place_are_cast_anew() -> None:
    net = nn.Linear(16, 16, bias=False)
    _, _ = prepared(net, "current")
    net(torch.eye(16))
    with torch.no_grad():
        net.weight.mul_(2)
    torch.testing.assert_close(net(torch.eye(16)).t(), net.weight, rtol=2**-4, atol=0)


def test_frozen_tied_hooked_and_bias_free_layers() -> None:
    """Field reports A07, A08 and A29 on real FP8 numerics."""
    net = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16), nn.Linear(16, 16, bias=False))
    net[1].weight = net[0].weight
    net[2].requires_grad_(False)
    seen: list[int] = []
    net[2].register_forward_hook(lambda *_: seen.append(1))
    x = torch.rand(8, 16)
    before = net(x)
    frozen = net[2].weight.clone()
    artifacts, _ = prepared(net, "current")
    with artifacts.autocast_context():
        assert (net(x) - before).norm() / before.norm() < 0.1
    train(artifacts, [torch.rand(8, 16)] * 5)
    assert net[0].weight is net[1].weight
    assert torch.equal(net[2].weight, frozen)
    assert len(seen) == 7


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("stochastic", [False, True])
def test_state_comes_back_to_the_bit(recipe: str, stochastic: bool) -> None:
    """Twenty steps, save, load into a new model: every history, scale and loss is that of the run that went on."""
    torch.manual_seed(1)
    inputs = [torch.randn(6, 24) for _ in range(25)]
    net = nn.Sequential(nn.Linear(24, 24), nn.Linear(24, 8))
    fields = {"stochastic_rounding": stochastic} | ({"amax_history_len": 16} if recipe == "delayed" else {})
    artifacts, engine = prepared(net, recipe, **fields)
    train(artifacts, inputs[:20])
    buffer = io.BytesIO()
    torch.save({"weights": net.state_dict(), "precision": artifacts.state_dict()}, buffer)
    buffer.seek(0)
    goes_on = train(artifacts, inputs[20:])
    saved = torch.load(buffer, weights_only=True)
    torch.manual_seed(99)
    other = nn.Sequential(nn.Linear(24, 24), nn.Linear(24, 8))
    again, its_engine = prepared(other, recipe, **fields)
    other.load_state_dict(saved["weights"])
    again.load_state_dict(saved["precision"])
    assert train(again, inputs[20:]) == goes_on
    assert same(its_engine.state(), engine.state())


def test_stochastic_rounding_has_a_generator_of_its_own() -> None:
    def losses(seed: int) -> list[float]:
        torch.manual_seed(5)
        net, inputs = nn.Linear(24, 24), [torch.randn(6, 24) for _ in range(4)]
        torch.manual_seed(seed)
        artifacts, _ = prepared(net, "current", stochastic_rounding=True)
        untouched = torch.get_rng_state()
        found = train(artifacts, inputs)
        assert torch.equal(torch.get_rng_state(), untouched)
        return found

    assert losses(1) == losses(1)
    assert losses(1) != losses(2)


@pytest.mark.parametrize("length", [4, 64])
def test_another_history_length_keeps_the_newest(length: int) -> None:
    """Field report A32."""
    first, engine = prepared(nn.Linear(16, 16), amax_history_len=16)
    train(first, [torch.full((2, 16), float(step)) for step in range(1, 11)], lr=0.0)
    second, other = prepared(nn.Linear(16, 16), amax_history_len=length)
    second.load_state_dict(first.state_dict())
    kept = min(length, 10)
    newest = engine.history("", "input").history[-kept + (kept == length) :]
    assert other.history("", "input").history.numel() == length
    assert torch.equal(other.history("", "input").history[-len(newest) :], newest)
    assert other.history("", "input").scale == engine.history("", "input").scale


def test_a_plain_checkpoint_loads_into_an_fp8_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Field report A13: strict, and one line says that FP8 state starts fresh."""
    run = trainer(tmp_path, max_steps=3)
    run.fit(Lit(), loader())
    run.save_checkpoint(tmp_path / "plain.ckpt")
    lit = Lit()
    fp8 = trainer(tmp_path, max_steps=6, plugins=SNNPrecision("fp8", fp8_engine="emulated"))
    with caplog.at_level(logging.WARNING, "lightning_snnprec"):
        fp8.fit(lit, loader(), ckpt_path=tmp_path / "plain.ckpt")
    assert fp8.global_step == 6
    assert caplog.text.count("starts fresh") == 1
    fp8.save_checkpoint(tmp_path / "fp8.ckpt")
    plain = Lit()
    trainer(tmp_path, max_steps=8).fit(plain, loader(), ckpt_path=tmp_path / "fp8.ckpt")


@pytest.mark.parametrize("recipe", RECIPES)
def test_taking_the_model_out_again(recipe: str) -> None:
    """Field report A35: plain classes, original keys, exportable, output within FP8's error."""
    net = nn.Sequential(nn.Linear(16, 16), LIFNode(), nn.Linear(16, 4))
    artifacts, _ = prepared(net, recipe)
    train(artifacts, [torch.rand(4, 3, 16) * 3 for _ in range(5)])
    x = torch.rand(4, 3, 16) * 3
    to_plain(net)
    untouched = nn.Sequential(nn.Linear(16, 16), LIFNode(), nn.Linear(16, 4))
    untouched.load_state_dict(net.state_dict(), strict=True)
    assert torch.equal(net(x), untouched(x))
    exported = torch.export.export(untouched[0], (x,))
    torch.testing.assert_close(exported.module()(x), untouched[0](x))


@pytest.mark.parametrize("bad", [float("inf"), float("nan")])
@pytest.mark.parametrize("where", ["input", "grad"])
def test_what_a_cast_hides_reaches_the_grad_scaler(bad: float, where: str) -> None:
    net = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 16, bias=False))
    artifacts, engine = prepared(net, fp8_fallback_dtype="fp16", loss_scale={"init": 8.0})
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    before = [parameter.detach().clone() for parameter in net.parameters()]
    x = torch.rand(4, 16)
    factor = torch.ones(4, 16)
    (x if where == "input" else factor)[1, 2] = bad
    with artifacts.autocast_context():
        loss = (net(x).float() * factor).nan_to_num(nan=0.0, posinf=0.0).sum()
        if where == "grad":
            loss = (net(x).float() * factor).sum()
    artifacts.backward(loss, optimizer)
    assert artifacts.skipped_steps == 1
    assert artifacts.scaler is not None
    assert artifacts.scaler.get_scale() == 4.0
    assert all(torch.equal(now, then) for now, then in zip(net.parameters(), before, strict=True))
    optimizer.zero_grad()
    train(artifacts, [torch.rand(4, 16)])
    assert artifacts.skipped_steps == 1
    assert all(history.isfinite().all() for history in [engine.history("0", "input").history])


@pytest.mark.parametrize("fallback", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_trains_under_the_plugin(recipe: str, fallback: str, tmp_path: Path) -> None:
    scale = {"loss_scale": {"init": 256.0}} if fallback == "fp16" else {}
    plugin = SNNPrecision("fp8", fp8_engine="emulated", fp8_recipe=recipe, fp8_fallback_dtype=fallback, **scale)
    lit = Lit()
    trainer(tmp_path, max_epochs=10, plugins=plugin).fit(lit, loader(), loader(20))
    assert lit.learned
    assert plugin.artifacts.describe()["policy"]["simulation"] is True


def test_copies_take_their_own_state_along() -> None:
    net = nn.Sequential(nn.Linear(16, 16), nn.Linear(16, 4))
    artifacts, engine = prepared(net, stochastic_rounding=True)
    train(artifacts, [torch.rand(3, 16)])
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        x = torch.rand(3, 16)
        assert torch.equal(twin(x), net(x))
        copied: Any = twin[0].__dict__["_snnprec_binding"].engine
        assert copied.history("0", "input").history.data_ptr() != engine.history("0", "input").history.data_ptr()
        assert torch.equal(copied.random.state(), engine.random.state())


@pytest.mark.parametrize("norm", [nn.LayerNorm, nn.RMSNorm])
def test_a_norm_before_a_linear_is_cast_once_from_fp32(norm: type[nn.Module]) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(norm(32), nn.Linear(32, 16))  # type: ignore[call-arg]
    x = torch.randn(7, 32)
    wide = net[0](x)
    types = [type(module) for module in net]
    keys = list(net.state_dict())
    artifacts, _ = prepared(net, "current", fp8_fallback_dtype="bf16")
    assert artifacts.plan.converted == ("0", "1")
    expected = quantize_current(wide, E4M3).restored @ quantize_current(net[1].weight, E4M3).restored.t()
    with artifacts.autocast_context():
        found = net(x)
    assert torch.equal(found, (expected + net[1].bias).bfloat16())
    found.float().sum().backward()
    assert net[0].weight.grad.isfinite().all()  # type: ignore[union-attr]
    assert list(net.state_dict()) == keys
    to_plain(net)
    assert [type(module) for module in net] == types


def test_a_norm_with_a_hook_or_without_a_converted_linear_stays() -> None:
    net = nn.Sequential(
        nn.LayerNorm(32), nn.Linear(32, 32), nn.LayerNorm(32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 8)
    )
    net[0].register_forward_hook(lambda *_: None)
    artifacts, _ = prepared(net, "current", exclude=["5"])
    assert artifacts.plan.converted == ("1",)
    assert [type(module) for module in (net[0], net[2], net[4])] == [nn.LayerNorm] * 3


def test_layer_norms_without_affine_parameters() -> None:
    """Field report A29."""
    for norm in (nn.LayerNorm(16, elementwise_affine=False), nn.LayerNorm(16, bias=False)):
        net = nn.Sequential(norm, nn.Linear(16, 4, bias=False))
        names = [name for name, _ in net.named_parameters()]
        artifacts, _ = prepared(net, "delayed")
        assert artifacts.plan.converted == ("0", "1")
        assert train(artifacts, [torch.randn(3, 16)])[0] > 0
        assert [name for name, _ in net.named_parameters()] == names


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_loss_curve_is_reproducible_to_the_bit(recipe: str, tmp_path: Path) -> None:
    curves = []
    for _ in range(2):
        torch.manual_seed(11)
        lit = Lit()
        plugin = SNNPrecision("fp8", fp8_engine="emulated", fp8_recipe=recipe, stochastic_rounding=True)
        trainer(tmp_path, max_epochs=3, plugins=plugin).fit(lit, loader())
        curves.append(lit.losses)
    assert curves[0] == curves[1]
    assert len(set(curves[0])) > 6


def test_subclasses_stay_as_they_are_and_the_base_of_an_adapter_is_converted() -> None:
    """Field report A09."""
    net = nn.Sequential(Scaled(16, 16), Adapter(16))
    x = torch.randn(7, 16)
    subclass_output = net[0](x)
    artifacts, _ = prepared(net, "current")
    assert artifacts.plan.converted == ("1.base",)
    assert torch.equal(net[0](x), subclass_output)
    before = [parameter.detach().clone() for parameter in net.parameters()]
    train(artifacts, [x, x])
    assert all(not torch.equal(now, then) for now, then in zip(net.parameters(), before, strict=True))


@pytest.mark.parametrize("recipe", RECIPES)
def test_no_edit_of_a_weight_is_missed(recipe: str) -> None:
    """Edits through `.data` leave no trace in a tensor's version."""
    layer = nn.Linear(16, 4, bias=False)
    artifacts, _ = prepared(layer, recipe)
    x = torch.ones(2, 16)
    with artifacts.autocast_context():
        layer(x)
    layer.weight.data.clamp_(-1e-3, 1e-3)
    layer.eval()
    with torch.no_grad(), artifacts.autocast_context():
        assert layer(x).abs().max() <= 0.02


def test_a_backward_in_evaluation_leaves_no_trace_and_skips_no_step() -> None:
    net = nn.Linear(16, 4)
    artifacts, engine = prepared(net, "delayed", fp8_fallback_dtype="fp16", loss_scale={"init": 8.0})
    train(artifacts, [torch.rand(3, 16)])
    before = engine.state()
    net.eval()
    x = torch.full((3, 16), float("inf")).requires_grad_()
    with artifacts.autocast_context():
        y = net(x).float().sum()
    torch.autograd.grad(y * float("inf"), x)
    assert same(engine.state(), before)
    net.train()
    train(artifacts, [torch.rand(3, 16)])
    assert artifacts.skipped_steps == 0


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing_records_what_a_plain_forward_does(reentrant: bool) -> None:
    states = []
    for checkpointed in (False, True):
        torch.manual_seed(2)
        net = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
        artifacts, engine = prepared(net)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(4):
            optimizer.zero_grad()
            x = torch.rand(3, 16).requires_grad_()
            with artifacts.autocast_context():
                y = checkpoint(net, x, use_reentrant=reentrant) if checkpointed else net(x)
                loss = y.float().square().mean()
            artifacts.backward(loss, optimizer)
        states.append((engine.state()["layers"], net.state_dict()))
    assert same(dict(enumerate(states[0])), dict(enumerate(states[1])))


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors is a no-op")
def test_layers_without_elements_are_left_alone() -> None:
    net = nn.ModuleList([nn.Linear(8, 4), nn.Linear(4, 0)])
    artifacts, _ = prepared(net)
    assert artifacts.plan.converted == ("0",)
