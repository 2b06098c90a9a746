"""Neurons as modules: dtype of the membrane, step modes, carried state, copies, devices."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from lightning_snnprec import neurons
from lightning_snnprec.neurons import (
    BaseNode,
    IFNode,
    LIFNode,
    NeuronPolicy,
    ParametricLIFNode,
    begin_batch,
    lif_multi_step,
    reset_net,
    surrogate,
)
from tests.neurons.cases import KINDS, current

LOW = [torch.float16, torch.bfloat16]


def _net(**options: object) -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 5), LIFNode(**options), nn.Linear(5, 4), ParametricLIFNode(**options))


def _step(net: nn.Module, x: Tensor) -> Tensor:
    loss = (net(x) - 0.5).square().sum() + sum(node.v.sum() for node in net.modules() if isinstance(node, BaseNode))
    loss.backward()
    return loss.detach()


# A14: the membrane has the policy's dtype, always.


@pytest.mark.parametrize("policy", [None, NeuronPolicy(), NeuronPolicy(torch.float32)])
@pytest.mark.parametrize("dtype", [*LOW, torch.float32])
@pytest.mark.parametrize("kind", KINDS)
def test_membrane_is_fp32_at_every_step(kind: str, dtype: torch.dtype, policy: NeuronPolicy | None) -> None:
    node = getattr(neurons, kind)(step_mode="s")
    node.policy = policy
    for batch in range(3):
        if batch == 1:
            node.to(dtype)
        for x in current(4, 3, 5, dtype=dtype):
            assert node(x).dtype == dtype
            assert node.v.dtype == torch.float32
        node.to(torch.bfloat16)
        assert node.v.dtype == torch.float32
        reset_net(node)
        assert node.v == 0.0


@pytest.mark.parametrize("dtype", LOW)
@pytest.mark.parametrize("kind", KINDS)
def test_autocast_does_not_reach_the_membrane(kind: str, dtype: torch.dtype) -> None:
    net = nn.Sequential(nn.Linear(6, 5), getattr(neurons, kind)(store_v_seq=True, v_reset=None))
    x = current(7, 3, 6)
    with torch.autocast("cpu", dtype):
        inputs = net[0](x)
        spikes = net(x)
    assert inputs.dtype == spikes.dtype == dtype
    assert net[1].v.dtype == net[1].v_seq.dtype == torch.float32
    with torch.no_grad():
        assert torch.equal(net[1](inputs.float()), spikes.float())
    spikes.sum().backward()
    assert net[0].weight.grad.dtype == torch.float32
    assert torch.isfinite(net[0].weight.grad).all()


def test_policy_decides_over_fp64_input_and_input_over_the_module() -> None:
    node = LIFNode(stateful=True)
    x = current(3, 2, 4, dtype=torch.float64)
    assert node(x).dtype == node.v.dtype == torch.float64
    node.policy = NeuronPolicy(torch.float32)
    assert node(x).dtype == torch.float64
    assert node.v.dtype == torch.float32


def test_small_bf16_inputs_add_up() -> None:
    node = IFNode(step_mode="s")
    x = torch.full((2, 3), 0.0015, dtype=torch.bfloat16)
    fired = [t for t in range(1, 700) if node(x)[0, 0] == 1]
    assert len(fired) == 1
    assert abs(fired[0] - 667) <= 1


def test_threshold_is_met_by_the_unrounded_membrane() -> None:
    node = IFNode(step_mode="s")
    node.v = torch.tensor([0.9999, 1.0001])
    # Both round to 1 in BF16.
    assert torch.equal(node.v.to(torch.bfloat16), torch.ones(2, dtype=torch.bfloat16))
    assert torch.equal(node(torch.zeros(2, dtype=torch.bfloat16)), torch.tensor([0.0, 1.0], dtype=torch.bfloat16))


# A36: spikes that are not floats.


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float64])
def test_any_real_input(dtype: torch.dtype) -> None:
    x = torch.randint(0, 2, (5, 4, 3)).to(dtype)
    node = LIFNode(v_threshold=0.6, store_v_seq=True)
    spikes = node(x)
    assert spikes.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert torch.equal(spikes.float(), LIFNode(v_threshold=0.6)(x.float()))
    assert node.v_seq.dtype == spikes.dtype
    assert 0 < spikes.mean() < 1


# Step modes and carried state.


def test_multi_step_starts_from_rest_each_time() -> None:
    node, x = LIFNode(v_reset=-0.3), current(5, 4, 3)
    first, v = node(x), node.v
    assert torch.equal(node(x), first)
    assert torch.equal(node.v, v)
    assert torch.equal(lif_multi_step(x, -0.3, v_reset=-0.3)[1], v)


@pytest.mark.parametrize("kind", KINDS)
def test_single_steps_and_stateful_halves_equal_one_call(kind: str) -> None:
    x = current(6, 4, 3)
    whole = getattr(neurons, kind)(store_v_seq=True)
    spikes = whole(x)
    single = getattr(neurons, kind)(step_mode="s", store_v_seq=True)
    assert single.v_seq is None
    assert torch.equal(torch.stack([single(x_BN) for x_BN in x]), spikes)
    assert torch.equal(single.v_seq, whole.v_seq)
    assert torch.equal(single.v, whole.v)
    halves = getattr(neurons, kind)(stateful=True)
    assert torch.equal(torch.cat([halves(x[:2]), halves(x[2:])]), spikes)
    assert torch.equal(halves.v, whole.v)


def test_v_seq_starts_anew_with_the_batch_and_is_off_by_default() -> None:
    node = IFNode(step_mode="s", store_v_seq=True, stateful=True)
    node(torch.ones(2, 3) / 4)
    node(torch.ones(2, 3) / 4)
    assert node.v_seq.shape == (2, 2, 3)
    begin_batch(node)
    assert node.v_seq is None
    node(torch.ones(2, 3) / 4)
    assert torch.equal(node.v_seq, torch.full((1, 2, 3), 0.75))
    node.reset()
    assert node.v_seq is None
    plain = IFNode()
    plain(torch.ones(2, 3, 4))
    assert plain.v_seq is None


@pytest.mark.parametrize("step_mode", ["s", "m"])
def test_gradients_flow_through_the_carried_membrane_inside_a_batch(step_mode: str) -> None:
    node = LIFNode(step_mode=step_mode, stateful=True, detach_reset=True)
    first = torch.full((2, 1, 3), 0.3, requires_grad=True)
    second = torch.full((2, 1, 3), 0.2, requires_grad=True)
    for x in (first, second):
        for part in x if step_mode == "s" else [x]:
            node(part)
    node.v.sum().backward()
    assert torch.allclose(first.grad[:, 0, 0], torch.tensor([0.5**4, 0.5**3]))
    assert torch.allclose(second.grad[:, 0, 0], torch.tensor([0.5**2, 0.5]))


# A15: batches of another size or length.


@pytest.mark.parametrize("step_mode", ["s", "m"])
def test_a_carried_membrane_refuses_another_batch_size(step_mode: str) -> None:
    node = LIFNode(step_mode=step_mode, stateful=True)
    x = current(3, 32, 5)
    node(x if step_mode == "m" else x[0])
    said = r"LIFNode carries a membrane of shape \(32, 5\).* shape \(6, 5\).*reset_net"
    with pytest.raises(ValueError, match=said):
        node(x[:, :6] if step_mode == "m" else x[0, :6])
    assert node.v.shape == (32, 5)
    reset_net(node)
    node(x[:, :6] if step_mode == "m" else x[0, :6])
    assert node.v.shape == (6, 5)


@pytest.mark.parametrize("step_mode", ["s", "m"])
def test_batches_of_any_size_and_length_with_the_reset(step_mode: str) -> None:
    net = _net(step_mode=step_mode)
    data = current(4, 70, 6)
    whole = [net(x) for x in data] if step_mode == "s" else list(net(data))
    for start in (0, 32, 64):
        begin_batch(net)
        T = 4 if start < 64 else 3
        batch = data[:T, start : start + 32]
        spikes = [net(x) for x in batch] if step_mode == "s" else list(net(batch))
        for t in range(T):
            assert torch.equal(spikes[t], whole[t][start : start + 32])


# A16: checkpoints.


@pytest.mark.parametrize("step_mode", ["s", "m"])
def test_state_dict_holds_weights_only_and_loads_for_any_batch(step_mode: str) -> None:
    net = _net(step_mode=step_mode, stateful=True, store_v_seq=True)
    empty = list(_net().state_dict())
    x = current(3, 32, 6)
    net(x if step_mode == "m" else x[0])
    assert list(net.state_dict()) == empty == ["0.weight", "0.bias", "2.weight", "2.bias", "3.w"]
    assert not list(net.buffers())
    file = io.BytesIO()
    torch.save(net.state_dict(), file)
    file.seek(0)
    other = _net(step_mode=step_mode, stateful=True)
    other.load_state_dict(torch.load(file, weights_only=True))
    small = x[:, :8] if step_mode == "m" else x[0, :8]
    reset_net(net)
    assert torch.equal(other(small), net(small))


# A17: backward, state and resets.


def test_state_carried_over_batches_gives_the_gradients_of_each_batch() -> None:
    x = current(3, 5, 4, 3)
    node, v = ParametricLIFNode(stateful=True), torch.zeros(4, 3)
    for batch in x:
        begin_batch(node)
        leaf, reference_leaf = batch.clone().requires_grad_(), batch.clone().requires_grad_()
        w = node.w.detach().clone().requires_grad_()
        spikes, after, _ = neurons.plif_multi_step(reference_leaf, v, w)
        expected = torch.autograd.grad(spikes.sum() + after.square().sum(), [reference_leaf, w])
        loss = node(leaf).sum() + node.v.square().sum()
        for a, b in zip(torch.autograd.grad(loss, [leaf, node.w]), expected, strict=True):
            assert torch.equal(a, b)
        v = after.detach()
    assert torch.equal(node.v, v)


@pytest.mark.parametrize("between", [reset_net, begin_batch, neurons.detach_net])
@pytest.mark.parametrize("step_mode", ["s", "m"])
def test_a_reset_before_backward_leaves_the_gradients_alone(
    step_mode: str, between: Callable[[nn.Module], None]
) -> None:
    nets = [_net(step_mode=step_mode, stateful=True)]
    nets.append(copy.deepcopy(nets[0]))
    x = current(3, 4, 6)
    for net, early in zip(nets, (False, True), strict=True):
        loss = net(x).sum() if step_mode == "m" else sum(net(x_BN).sum() for x_BN in x)
        if early:
            between(net)
            net(x if step_mode == "m" else x[0])
        loss.backward()
    grads = [[p.grad for p in net.parameters()] for net in nets]
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


# A28: state written under inference mode.


@pytest.mark.parametrize("step_mode", ["s", "m"])
@pytest.mark.parametrize("ready", [begin_batch, lambda net: None])
def test_state_of_inference_mode_serves_training(step_mode: str, ready: Callable[[nn.Module], None]) -> None:
    net = _net(step_mode=step_mode, stateful=True, store_v_seq=True)
    x = current(3, 4, 6) if step_mode == "m" else current(4, 6)
    expected = copy.deepcopy(net)
    with torch.inference_mode():
        net(x)
    with torch.no_grad():
        expected(x)
    ready(net)
    assert torch.equal(_step(net, x), _step(expected, x))
    for p, q in zip(net.parameters(), expected.parameters(), strict=True):
        assert torch.equal(p.grad, q.grad)
    assert not any(node.v.is_inference() for node in (net[1], net[3]))


# A31: copies after a training step.


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda net: pickle.loads(pickle.dumps(net))])
@pytest.mark.parametrize("options", [{}, {"step_mode": "s"}, {"stateful": True}, {"store_v_seq": True}])
def test_copies_after_a_training_step(copied: Callable[[nn.Module], nn.Module], options: dict[str, object]) -> None:
    net = _net(**options)
    x = current(3, 4, 6) if options.get("step_mode") != "s" else current(4, 6)
    _step(net, x)
    twin = copied(net)
    tensors = [[*n.parameters(), n[1].v, n[3].v, *n[1]._v_seq] for n in (net, twin)]
    assert all(torch.equal(a, b) for a, b in zip(*tensors, strict=True))
    assert not {t.untyped_storage().data_ptr() for t in tensors[0]} & {
        t.untyped_storage().data_ptr() for t in tensors[1]
    }
    assert net[1].v.requires_grad
    assert not twin[1].v.requires_grad
    begin_batch(net)
    begin_batch(twin)
    assert torch.equal(net(x), twin(x))


def test_copies_of_inference_state() -> None:
    net = _net(stateful=True)
    with torch.inference_mode():
        net(current(3, 4, 6))
    twin = copy.deepcopy(net)
    assert torch.equal(twin[1].v, net[1].v)
    assert not twin[1].v.is_inference()


# Devices.


def test_state_follows_the_device_but_not_the_dtype() -> None:
    net = _net(stateful=True, store_v_seq=True)
    net(current(3, 4, 6))
    v = net[1].v
    net.to(torch.bfloat16)
    assert net[1].v is v
    assert net[3].w.dtype == torch.bfloat16
    net.to("meta")
    assert net[1].v == 0.0
    assert net[1].v_seq is None
    assert "tau=?" in repr(net)
    assert net(torch.empty(3, 4, 6, dtype=torch.bfloat16, device="meta")).shape == (3, 4, 4)
    assert net[1].v.device.type == "meta"
    net.to_empty(device="cpu")
    assert net[1].v == 0.0


def test_bf16_parameter_of_plif_is_read_in_fp32() -> None:
    node = ParametricLIFNode(init_tau=3.0).to(torch.bfloat16)
    x = current(5, 4, 3, dtype=torch.bfloat16)
    spikes = node(x)
    expected, v, _ = neurons.plif_multi_step(x.float(), 0.0, node.w.float())
    assert torch.equal(spikes.float(), expected)
    assert torch.equal(node.v, v)
    spikes.sum().backward()
    assert node.w.grad.dtype == torch.bfloat16


# Input and representation.


def test_bad_inputs_are_named() -> None:
    node = LIFNode()
    with pytest.raises(ValueError, match=r"found T=0 in shape \(0, 4, 3\)"):
        node(torch.zeros(0, 4, 3))
    for shape in ((), (5,)):
        with pytest.raises(ValueError, match=r"input of shape \[T, B, ...\], time first"):
            node(torch.zeros(shape))
    with pytest.raises(ValueError, match="tensor of real numbers"):
        node(torch.zeros(2, 3, dtype=torch.complex64))
    with pytest.raises(ValueError, match="tensor of real numbers as input; found tuple"):
        LIFNode(step_mode="s")((torch.zeros(2),))
    assert node.v == 0.0


@pytest.mark.parametrize("kind", KINDS)
def test_empty_batch(kind: str) -> None:
    node = getattr(neurons, kind)(store_v_seq=True)
    x = torch.zeros(3, 0, 5, requires_grad=True)
    spikes = node(x)
    assert spikes.shape == node.v_seq.shape == (3, 0, 5)
    spikes.sum().backward()
    assert x.grad.shape == (3, 0, 5)


def test_a_single_neuron_takes_single_numbers() -> None:
    node = IFNode(step_mode="s", v_threshold=0.5)
    assert [node(torch.tensor(0.3)).item() for _ in range(4)] == [0.0, 1.0, 0.0, 1.0]


def test_a_plain_function_can_be_the_surrogate() -> None:
    node = LIFNode(surrogate_function=torch.sigmoid, v_reset=None)
    x = current(4, 2, 3, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(node, (x,))
    assert not list(node.children())


def test_repr_shows_the_parameters() -> None:
    shown = repr(LIFNode(3, v_reset=None, surrogate_function=surrogate.ATan(), stateful=True))
    assert "tau=3.0, decay_input=True, v_threshold=1.0, v_reset=None, detach_reset=False" in shown
    assert "step_mode='m', store_v_seq=False, stateful=True" in shown
    assert "ATan(alpha=2.0, spiking=True)" in shown
    node = ParametricLIFNode(init_tau=4.0)
    node.policy = NeuronPolicy(torch.float32)
    assert "tau=4, " in repr(node)
    assert "policy=NeuronPolicy(storage=torch.float32, forward='fp32', backward='fp32')" in repr(node)


def test_plif_learns_its_time_constant() -> None:
    x = current(8, 16, 3)
    target = LIFNode(tau=5.0, v_threshold=100.0)
    target(x)
    node = ParametricLIFNode(init_tau=2.0, v_threshold=100.0)
    optimizer = torch.optim.Adam(node.parameters(), lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        node(x)
        (node.v - target.v).square().mean().backward()
        optimizer.step()
    assert abs(1 / torch.sigmoid(node.w).item() - 5.0) < 0.05
