import io
import logging
from typing import Any

import pytest
import torch
from torch import nn

from lightning_snnprec import PrecisionArtifacts, prepare_model_for_precision
from lightning_snnprec.neurons import LIFNode
from tests.precision.models import spiking_net
from tests.stub_engine import StubEngine

MODES = ("fp32", "bf16", "fp16", "fp8")


def prepared(net: nn.Module, mode: str, **fields: Any) -> PrecisionArtifacts:
    fp8 = {"fp8_engine": "emulated"} if mode == "fp8" else {}
    return prepare_model_for_precision(net, "cpu", {"mode": mode, **fp8, **fields})


@pytest.mark.usefixtures("stub_engine")
@pytest.mark.parametrize("mode", MODES)
def test_one_loop_trains_in_every_mode(mode: str) -> None:
    net = spiking_net(16, 3)
    artifacts = prepared(net, mode)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.03)
    x = torch.rand(30, 16).expand(4, 30, 16) * 2
    y = x[0, :, :3].argmax(1)
    losses = []
    for _ in range(50):
        with artifacts.autocast_context():
            logits = artifacts.model(x).mean(0)
            loss = nn.functional.cross_entropy(logits.float(), y)
        optimizer.zero_grad()
        norm = artifacts.backward(loss, optimizer, clip_grad_norm=1.0)
        assert norm is not None
        assert norm.isfinite()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    assert all(parameter.dtype == torch.float32 for parameter in net.parameters())
    assert artifacts.skipped_steps == 0
    assert (artifacts.scaler is not None) == (mode == "fp16")
    if isinstance(artifacts.engine, StubEngine):
        assert artifacts.engine.optimizer_steps == 50


def test_layers_run_in_the_autocast_dtype_and_neurons_in_fp32() -> None:
    for mode, dtype in {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}.items():
        net = nn.Sequential(nn.Linear(8, 8), LIFNode(stateful=True))
        artifacts = prepared(net, mode)
        with artifacts.autocast_context():
            spikes = net(torch.rand(3, 2, 8))
        assert spikes.dtype == dtype
        assert net[1].v.dtype == torch.float32


def test_clipping_sees_true_gradients() -> None:
    """Gradients of norm 0.5 under a limit of 1 are left alone, whatever the loss scale (field report A06)."""
    updates = {}
    for mode in ("fp32", "fp16"):
        layer = nn.Linear(4, 1, bias=False)
        nn.init.zeros_(layer.weight)
        artifacts = prepared(layer, mode, **({"loss_scale": {"init": 1024.0}} if mode == "fp16" else {}))
        optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
        with artifacts.autocast_context():
            loss = layer(torch.full((1, 4), 0.25)).float().sum()
        norm = artifacts.backward(loss, optimizer, clip_grad_norm=1.0)
        assert norm is not None
        assert norm.item() == 0.5
        updates[mode] = layer.weight.detach().clone()
    assert torch.equal(updates["fp16"], updates["fp32"])


def test_accumulation_unscales_once() -> None:
    layer = nn.Linear(4, 1, bias=False)
    nn.init.zeros_(layer.weight)
    artifacts = prepared(layer, "fp16")
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    for micro in range(4):
        with artifacts.autocast_context():
            loss = layer(torch.full((1, 4), 0.25)).float().sum() / 4
        norm = artifacts.backward(loss, optimizer, clip_grad_norm=1.0, step_optimizer=micro == 3)
    assert norm is not None
    assert norm.item() == 0.5
    assert torch.equal(layer.weight.detach(), torch.full((1, 4), -0.25))


def test_a_step_with_inf_is_skipped_counted_and_backs_the_scale_off() -> None:
    layer = nn.Linear(4, 1)
    artifacts = prepared(layer, "fp16", loss_scale={"init": 8.0})
    optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
    before = layer.weight.detach().clone()
    artifacts.backward(layer(torch.ones(1, 4)).sum() * float("inf"), optimizer)
    assert torch.equal(layer.weight.detach(), before)
    assert (artifacts.skipped_steps, artifacts.last_step_skipped) == (1, True)
    assert artifacts.scaler is not None
    assert artifacts.scaler.get_scale() == 4.0
    optimizer.zero_grad()
    artifacts.backward(layer(torch.ones(1, 4)).sum(), optimizer)
    assert (artifacts.skipped_steps, artifacts.last_step_skipped) == (1, False)


def test_fused_optimizers_clip_and_skip() -> None:
    layer = nn.Linear(4, 1)
    artifacts = prepared(layer, "fp16")
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1, fused=True)
    artifacts.backward(layer(torch.ones(1, 4)).sum(), optimizer, clip_grad_norm=0.1)
    after = layer.weight.detach().clone()
    optimizer.zero_grad()
    artifacts.backward(layer(torch.ones(1, 4)).sum() * float("nan"), optimizer, clip_grad_norm=0.1)
    assert torch.equal(layer.weight.detach(), after)
    assert artifacts.skipped_steps == 1


def test_an_optimizer_of_other_parameters_is_named() -> None:
    net = spiking_net(8)
    stranger = torch.optim.SGD(nn.Linear(3, 5).parameters(), lr=0.1)
    artifacts = prepared(net, "bf16")
    with pytest.raises(RuntimeError, match=r"SGD holds parameters .*group 0, parameter 0 of shape \(5, 3\)"):
        artifacts.backward(net(torch.rand(2, 1, 8)).sum(), stranger)


def test_describe_is_plain_and_says_what_runs() -> None:
    artifacts = prepared(spiking_net(8), "fp16")
    described = artifacts.describe()
    assert list(described) == ["config", "policy", "capability_report", "conversion_report", "neurons"]
    assert described["policy"]["autocast_dtype"] == "fp16"
    assert described["policy"]["loss_scale"]["init"] == 65536.0
    assert described["neurons"]["modules"] == ["1"]
    assert described["conversion_report"]["gemms"] == {"0": "fp16", "2": "fp16"}
    buffer = io.BytesIO()
    torch.save(described, buffer)
    buffer.seek(0)
    assert torch.load(buffer, weights_only=True) == described


def test_state_is_plain_and_comes_back() -> None:
    def run(steps: int, artifacts: PrecisionArtifacts) -> None:
        layer, optimizer = artifacts.model, torch.optim.SGD(artifacts.model.parameters(), lr=0.1)
        for step in range(steps):
            optimizer.zero_grad()
            artifacts.backward(layer(torch.ones(1, 4)).sum() * (float("inf") if step == 1 else 1.0), optimizer)

    first = prepared(nn.Linear(4, 1), "fp16", loss_scale={"growth_interval": 5})
    run(7, first)
    buffer = io.BytesIO()
    torch.save(first.state_dict(), buffer)
    buffer.seek(0)
    second = prepared(nn.Linear(4, 1), "fp16", loss_scale={"growth_interval": 5})
    second.load_state_dict(torch.load(buffer, weights_only=True))
    assert second.skipped_steps == 1
    assert first.scaler is not None
    assert second.scaler is not None
    assert second.scaler.state_dict() == first.scaler.state_dict()
    assert second.scaler.get_scale() == 65536.0 * 0.5 * 2.0


def test_the_membrane_of_stateful_neurons_is_in_the_state_but_not_in_the_weights() -> None:
    net = nn.Sequential(nn.Linear(8, 8), LIFNode(stateful=True, v_threshold=100.0))
    artifacts = prepared(net, "fp32")
    net(torch.rand(3, 32, 8))
    state = artifacts.state_dict()
    assert list(net.state_dict()) == ["0.weight", "0.bias"]
    fresh = nn.Sequential(nn.Linear(8, 8), LIFNode(stateful=True, v_threshold=100.0))
    prepared(fresh, "fp32").load_state_dict(state)
    assert torch.equal(fresh[1].v, net[1].v)


def test_changed_neuron_constants_are_reported() -> None:
    state = prepared(nn.Sequential(nn.Linear(8, 8), LIFNode(v_threshold=0.5, tau=3.0)), "fp32").state_dict()
    other = prepared(nn.Sequential(nn.Linear(8, 8), LIFNode()), "fp32")
    with pytest.warns(UserWarning, match=r"1.tau was 3.0 when saved and is 2.0 now; 1.v_threshold was 0.5") as caught:
        other.load_state_dict(state)
    assert len(caught) == 1


def test_another_precision_is_a_warm_start_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    state = prepared(nn.Linear(4, 4), "bf16").state_dict()
    with caplog.at_level(logging.WARNING, "lightning_snnprec"):
        prepared(nn.Linear(4, 4), "fp16").load_state_dict(state)
    assert "warm start" in caplog.text


def test_foreign_and_future_states_are_refused() -> None:
    artifacts = prepared(nn.Linear(4, 4), "fp16")
    with pytest.raises(ValueError, match="not a state of PrecisionArtifacts: it has the keys \\['scale'\\]"):
        artifacts.load_state_dict({"scale": 1.0})
    with pytest.raises(ValueError, match="not a state of PrecisionArtifacts"):
        artifacts.load_state_dict({"version": 1, "config": {}})
    with pytest.raises(ValueError, match="not the state of a GradScaler: it lacks _growth_tracker"):
        artifacts.load_state_dict({**artifacts.state_dict(), "scaler": {"scale": 2.0}})
    with pytest.raises(ValueError, match="version 2, this lightning_snnprec reads up to 1"):
        artifacts.load_state_dict({**artifacts.state_dict(), "version": 2})


@pytest.mark.usefixtures("stub_engine")
def test_only_training_forwards_leave_a_trace_in_the_engine() -> None:
    net = spiking_net(16)
    artifacts = prepared(net, "fp8")
    engine = artifacts.engine
    assert isinstance(engine, StubEngine)
    with artifacts.autocast_context(), torch.no_grad():
        net(torch.rand(2, 3, 16))
    assert engine.input_amax["0"] == 0
    net.eval()
    with artifacts.autocast_context():
        net(torch.rand(2, 3, 16))
    assert engine.input_amax["0"] == 0
    net.train()
    with artifacts.autocast_context():
        net(torch.rand(2, 3, 16))
    assert engine.input_amax["0"] > 0


def test_autocast_casts_a_weight_once_for_all_time_steps() -> None:
    """Lightning's own context casts anew on each call: 32 casts for 16 steps through one Linear, instead of 2."""
    layer = nn.Linear(8, 8)
    artifacts = prepared(layer, "bf16")
    with torch.profiler.profile() as profile, artifacts.autocast_context():
        x = torch.rand(4, 8).bfloat16()
        for _ in range(16):
            x = layer(x)
    casts = sum(event.count for event in profile.key_averages() if event.key == "aten::_to_copy")
    assert casts <= 3  # weight, bias, and the input above


def test_a_no_grad_forward_before_training_does_not_cut_the_gradient() -> None:
    """The autocast cache must not hand a cast made without gradients to a forward that needs them."""
    layer = nn.Linear(8, 8)
    artifacts = prepared(layer, "bf16")
    with artifacts.autocast_context():
        with torch.no_grad():
            layer(torch.rand(4, 8))
        loss = layer(torch.rand(4, 8)).float().square().mean()
    loss.backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.abs().sum() > 0


def test_two_optimizers_of_which_one_accumulates() -> None:
    net = nn.ModuleList([nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False)])
    for layer in net:
        nn.init.zeros_(layer.weight)
    artifacts = prepared(net, "fp16", loss_scale={"init": 8.0, "growth_interval": 1})
    first, second = (torch.optim.SGD(layer.parameters(), lr=1.0) for layer in net)
    for step in range(4):
        artifacts.backward((net[1].weight * 0.125).sum(), second, step_optimizer=step == 3)
        artifacts.backward((net[0].weight * 0.125).sum(), first)
        first.zero_grad()
    assert [layer.weight.item() for layer in net] == [-0.5, -0.5]


@pytest.mark.parametrize("clip", [0.0, -1.0, float("nan")])
def test_a_clip_that_is_not_above_zero_is_refused(clip: float) -> None:
    layer = nn.Linear(4, 1)
    artifacts = prepared(layer, "fp32")
    with pytest.raises(ValueError, match="must be above 0"):
        artifacts.backward(layer(torch.ones(1, 4)).sum(), torch.optim.SGD(layer.parameters()), clip_grad_norm=clip)


def test_a_membrane_that_nobody_carries_any_more_is_dropped_with_a_word() -> None:
    net = nn.Sequential(nn.Linear(8, 8), LIFNode(stateful=True))
    artifacts = prepared(net, "fp32")
    net(torch.rand(3, 32, 8))
    other = nn.Sequential(nn.Linear(8, 8), LIFNode())
    with pytest.warns(UserWarning, match=r"1.stateful was True when saved and is False now"):
        prepared(other, "fp32").load_state_dict(artifacts.state_dict())


def test_a_step_inside_the_context_is_seen_by_the_next_forward() -> None:
    layer = nn.Linear(1, 1, bias=False)
    nn.init.ones_(layer.weight)
    artifacts = prepared(layer, "bf16")
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
    with artifacts.autocast_context():
        artifacts.backward(layer(torch.ones(1, 1)).float().sum(), optimizer)
        assert layer(torch.ones(1, 1)).item() == 0.5
