"""Values, spikes, gradients, checkpoints and resets against SpikingJelly 2.0."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from lightning_snnprec import neurons
from lightning_snnprec.neurons import begin_batch, detach_net, reset_net, surrogate
from tests.neurons import tolerances
from tests.neurons.cases import KINDS, SURROGATES, current, options, output_weights, train, train_by_steps

sj = pytest.importorskip(
    "spikingjelly.activation_based",
    reason="compares with SpikingJelly: pip install --no-deps spikingjelly==2.0.0 loguru",
)
sj_neuron = pytest.importorskip("spikingjelly.activation_based.neuron")
sj_surrogate = pytest.importorskip("spikingjelly.activation_based.surrogate")
sj_functional = pytest.importorskip("spikingjelly.activation_based.functional")

T, B, N = 7, 3, 11


def _equal(ours: list[Tensor], theirs: list[Tensor]) -> bool:
    return all(torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(ours, theirs, strict=True))


def _pair(kind: str, step_mode: str, ours: Any, theirs: Any, **made: Any) -> tuple[nn.Module, nn.Module]:
    common = {"step_mode": step_mode, "store_v_seq": True, **made}
    node = getattr(neurons, kind)(surrogate_function=ours, stateful=True, **common)
    return node, getattr(sj_neuron, kind)(surrogate_function=theirs, **common)


@pytest.mark.parametrize("name", SURROGATES)
@pytest.mark.parametrize("kind", KINDS)
def test_multi_step_is_bit_equal(kind: str, name: str) -> None:
    alpha = 0.5 + 4 * torch.rand(()).item()
    fired = 0.0
    for made in options(kind):
        pair = _pair(kind, "m", getattr(surrogate, name)(alpha), getattr(sj_surrogate, name)(alpha), **made)
        x, v, weights = current(T, B, N), torch.randn(B, N), output_weights(T, B, N)
        ours, theirs = (train(node, x, v, weights) for node in pair)
        assert _equal(ours, theirs), made
        fired += ours[0].mean().item()
    assert fired > 0.5


@pytest.mark.parametrize("name", SURROGATES)
@pytest.mark.parametrize("kind", KINDS)
def test_single_steps_are_bit_equal(kind: str, name: str) -> None:
    for made in options(kind):
        pair = _pair(kind, "s", getattr(surrogate, name)(), getattr(sj_surrogate, name)(), **made)
        x, weights = current(T, B, N), output_weights(T, B, N)
        ours, theirs = (train_by_steps(node, node, x, weights) for node in pair)
        assert _equal(ours, theirs), made
        assert torch.equal(pair[0].v_seq, pair[1].v_seq)


@pytest.mark.parametrize("step_mode", ["m", "s"])
@pytest.mark.parametrize("kind", KINDS)
def test_fp64_is_bit_equal_with_one_surrogate(kind: str, step_mode: str) -> None:
    for made in options(kind):
        shared = sj_surrogate.ATan()
        pair = [node.double() for node in _pair(kind, step_mode, shared, shared, **made)]
        x, v = current(T, B, N, dtype=torch.float64), torch.randn(B, N, dtype=torch.float64)
        weights = output_weights(T, B, N, torch.float64)
        if step_mode == "m":
            ours, theirs = (train(node, x, v, weights) for node in pair)
        else:
            ours, theirs = (train_by_steps(node, node, x, weights) for node in pair)
        if (kind, step_mode) == ("ParametricLIFNode", "m"):
            torch.testing.assert_close(ours.pop(), theirs.pop(), **tolerances.SIGMOID_ONCE)
        assert _equal(ours, theirs), made


@pytest.mark.parametrize("name", SURROGATES)
@pytest.mark.parametrize("kind", KINDS)
def test_fp64_is_close_with_surrogates_of_each(kind: str, name: str) -> None:
    for made in options(kind):
        pair = [
            node.double()
            for node in _pair(kind, "m", getattr(surrogate, name)(), getattr(sj_surrogate, name)(), **made)
        ]
        x, v = current(T, B, N, dtype=torch.float64), torch.randn(B, N, dtype=torch.float64)
        weights = output_weights(T, B, N, torch.float64)
        ours, theirs = (train(node, x, v, weights) for node in pair)
        assert _equal(ours[:3], theirs[:3]), made
        for a, b in zip(ours[3:], theirs[3:], strict=True):
            torch.testing.assert_close(a, b, **tolerances.PRODUCT_ORDER)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["if", "lif", "plif"])
def test_half_input_on_an_fp32_membrane_is_bit_equal(kind: str, dtype: torch.dtype) -> None:
    arguments = {"if": (), "lif": (1.7, True), "plif": (torch.tensor(0.3), True)}[kind]
    x, v = current(T, B, N, dtype=dtype), torch.randn(B, N)
    weights = output_weights(T, B, N)
    results = []
    for package, surrogates in ((neurons, surrogate), (sj_functional, sj_surrogate)):
        leaves = [x.clone().requires_grad_(), v.clone().requires_grad_()]
        multi_step = getattr(package, f"{kind}_multi_step")
        outputs = multi_step(*leaves, *arguments, 1.1, -0.1, surrogates.Sigmoid(), False, True)
        loss = sum((output * weight).sum() for output, weight in zip(outputs, weights, strict=True))
        results.append([*(o.detach() for o in outputs), *torch.autograd.grad(loss, leaves)])
    assert _equal(*results)
    assert results[0][0].dtype == results[0][3].dtype == dtype
    assert results[0][1].dtype == torch.float32


@pytest.mark.parametrize("kind", ["if", "lif", "plif"])
def test_functional_steps_take_the_same_arguments(kind: str) -> None:
    arguments = {"if": (), "lif": (2.5, False), "plif": (torch.tensor(-0.2), False)}[kind]
    x, v = current(B, N), torch.randn(B, N)
    ours = getattr(neurons, f"{kind}_step")(x, v, *arguments, 0.9, None, surrogate.Erf(), True)
    theirs = getattr(sj_functional, f"{kind}_step")(x, v, *arguments, 0.9, None, sj_surrogate.Erf(), True)
    assert _equal(list(ours), list(theirs))


@pytest.mark.parametrize("name", [name for name in SURROGATES if name != "SuperSpike"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_primitives_are_close(name: str, dtype: torch.dtype) -> None:
    alpha = 0.5 + 3 * torch.rand(()).item()
    u = torch.cat([torch.randn(501, dtype=dtype), torch.tensor([0.0, 1 / alpha, -1 / alpha, 30.0, -30.0], dtype=dtype)])
    results = []
    for package in (surrogate, sj_surrogate):
        leaf = u.clone().requires_grad_()
        value = getattr(package, name)(alpha, spiking=False)(leaf)
        results.append((value.detach(), *torch.autograd.grad(value.sum(), leaf)))
    tolerance = tolerances.PRIMITIVE_FP32 if dtype == torch.float32 else tolerances.PRIMITIVE_FP64
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, **tolerance)


@pytest.mark.parametrize("kind", KINDS)
def test_constructors_have_the_same_keywords_and_defaults(kind: str) -> None:
    ours = dict(inspect.signature(getattr(neurons, kind)).parameters)
    theirs = dict(inspect.signature(getattr(sj_neuron, kind)).parameters)
    assert list(ours) == [*theirs, "stateful"]
    differ = {name for name in theirs if ours[name].default != theirs[name].default}
    assert differ == {"step_mode", "surrogate_function"}
    node = getattr(neurons, kind)()
    default = theirs["surrogate_function"].default
    assert type(node.surrogate_function).__name__ == type(default).__name__
    assert node.surrogate_function.alpha == default.alpha


@pytest.mark.parametrize("name", SURROGATES)
def test_surrogates_have_the_same_keywords_and_defaults(name: str) -> None:
    ours, theirs = (inspect.signature(getattr(package, name)).parameters for package in (surrogate, sj_surrogate))
    assert [(p.name, p.default) for p in ours.values()] == [(p.name, p.default) for p in theirs.values()]


def test_checkpoints_load_into_each_other() -> None:
    def net(package: Any) -> nn.Sequential:
        return nn.Sequential(nn.Linear(5, 4), package.ParametricLIFNode(init_tau=3.0), package.IFNode())

    ours, theirs = net(neurons), net(sj_neuron)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    with torch.no_grad():
        ours[1].w.fill_(0.37)
    theirs.load_state_dict(ours.state_dict())
    assert theirs[1].w.item() == ours[1].w.item()
    fresh = net(neurons)
    fresh.load_state_dict(theirs.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(fresh.parameters(), ours.parameters(), strict=True))


@pytest.mark.parametrize("put_at_rest", [reset_net, begin_batch])
def test_foreign_neurons_are_put_at_rest(put_at_rest: Any) -> None:
    net = nn.Sequential(sj_neuron.LIFNode(v_reset=None), sj_neuron.IFNode(v_reset=-0.5), neurons.IFNode(step_mode="s"))
    loss = net(current(B, N).requires_grad_()).sum()
    put_at_rest(net)
    assert [node.v for node in net] == [0.0, -0.5, 0.0]
    loss.backward()
    assert torch.isfinite(net(current(B + 1, N))).all()


def test_foreign_neurons_are_detached() -> None:
    net = nn.Sequential(sj_neuron.LIFNode(), neurons.LIFNode(step_mode="s"))
    x = current(B, N).requires_grad_()
    loss = net(x).sum() + net[0].v.sum()
    before = [node.v.detach().clone() for node in net]
    assert all(node.v.requires_grad for node in net)
    detach_net(net)
    assert all(torch.equal(node.v, v) and not node.v.requires_grad for node, v in zip(net, before, strict=True))
    loss.backward()
    assert x.grad is not None


def test_spikingjelly_resets_our_neurons() -> None:
    net = nn.Sequential(neurons.LIFNode(step_mode="s", v_reset=-0.2))
    net(current(B, N))
    sj_functional.reset_net(net)
    assert net[0].v == -0.2
    sj_functional.set_step_mode(net, "m")
    assert net(current(T, B, N)).shape == (T, B, N)


def test_our_surrogates_work_in_their_neurons() -> None:
    ours, theirs = surrogate.SuperSpike(3.0), sj_surrogate.SuperSpike(3.0)
    x, v, weights = current(T, B, N), torch.randn(B, N), output_weights(T, B, N)
    made = [sj_neuron.LIFNode(surrogate_function=s, step_mode="m", store_v_seq=True) for s in (ours, theirs)]
    assert _equal(*(train(node, x, v, weights) for node in made))
