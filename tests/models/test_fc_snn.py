from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lightning_snnprec.models import FCSNN
from lightning_snnprec.neurons import LIFNode
from lightning_snnprec.telemetry import FiringRate


def _lif_by_hand(x_TBN: Tensor, tau: float, threshold: float) -> Tensor:
    v_BN, spikes = torch.zeros_like(x_TBN[0]), []
    for x_BN in x_TBN:
        h_BN = v_BN + (x_BN - v_BN) / tau
        spikes.append((h_BN >= threshold).to(h_BN.dtype))
        v_BN = h_BN * (1 - spikes[-1])
    return torch.stack(spikes)


def test_logits_equal_the_network_written_out_by_hand() -> None:
    net = FCSNN(13, (31, 17), 5, tau=1.7, v_threshold=0.4, init_gain=4.0).double()
    x_TBF = torch.rand(7, 11, 13, dtype=torch.float64)
    weights = {name: parameter.detach() for name, parameter in net.named_parameters()}
    h_TBN = x_TBF
    for i in (1, 2):
        h_TBN = _lif_by_hand(F.linear(h_TBN, weights[f"body.fc{i}.weight"], weights[f"body.fc{i}.bias"]), 1.7, 0.4)
        assert 0.01 < h_TBN.mean() < 0.99
    expected_BC = F.linear(h_TBN.mean(0), weights["head.weight"], weights["head.bias"])
    logits_BC = net(x_TBF)
    assert logits_BC.dtype == torch.float64
    torch.testing.assert_close(logits_BC, expected_BC, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("neuron", ["if", "lif", "plif"])
def test_gradients_equal_those_of_spikingjellys_neurons(neuron: str) -> None:
    sj = pytest.importorskip("spikingjelly.activation_based.neuron")
    sj_surrogate = pytest.importorskip("spikingjelly.activation_based.surrogate")
    kind = {"if": sj.IFNode, "lif": sj.LIFNode, "plif": sj.ParametricLIFNode}[neuron]

    def foreign() -> nn.Module:
        node: nn.Module = kind(surrogate_function=sj_surrogate.Sigmoid(), step_mode="m")
        return node

    ours = FCSNN(13, (31, 17), 5, neuron, init_gain=8.0)
    theirs = FCSNN(13, (31, 17), 5, foreign)
    theirs.load_state_dict(ours.state_dict())
    x_TBF, y_B = torch.rand(6, 9, 13), torch.randint(5, (9,))
    for net in (ours, theirs):
        F.cross_entropy(net(x_TBF), y_B).backward()
    expected = dict(theirs.named_parameters())
    for name, parameter in ours.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().sum() > 0
        torch.testing.assert_close(parameter.grad, expected[name].grad, rtol=1e-5, atol=1e-7, msg=name)


@pytest.mark.parametrize("autocast", [torch.bfloat16, torch.float16, None])
def test_the_mean_over_time_is_fp32_under_autocast(autocast: torch.dtype | None) -> None:
    net = FCSNN(13, (31,), 5, init_gain=3.0)
    outputs: list[Tensor] = []
    net.head.register_forward_hook(lambda module, inputs, output: outputs.append(output.detach()))
    with torch.autocast("cpu", autocast, enabled=autocast is not None):
        logits_BC = net(torch.rand(9, 6, 13))
    assert outputs[0].dtype == (autocast or torch.float32)
    assert logits_BC.dtype == torch.float32
    # Nine values of 8 or 11 significant bits: exact in fp64, and within the rounding of nine fp32 additions.
    torch.testing.assert_close(logits_BC.double(), outputs[0].double().mean(0), rtol=2e-6, atol=1e-7)


def test_trailing_dimensions_are_flattened() -> None:
    net = FCSNN(30, (17,), 3)
    x = torch.rand(4, 7, 2, 5, 3)
    assert torch.equal(net(x), net(x.reshape(4, 7, 30)))


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.float64])
def test_spikes_of_any_dtype_give_the_same_logits(dtype: torch.dtype, autocast: bool) -> None:
    net = FCSNN(13, (31,), 5, init_gain=3.0)
    spikes = torch.rand(4, 7, 13) < 0.5
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        expected, logits = net(spikes.float()), net(spikes.to(dtype))
    assert logits.dtype == torch.float32
    assert torch.equal(logits, expected)


def test_an_empty_batch_gives_no_logits() -> None:
    net = FCSNN(12, (17,), 3)
    assert net(torch.rand(4, 0, 12)).shape == (0, 3)
    assert net(torch.rand(4, 0, 3, 4)).shape == (0, 3)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((4, 7, 11), r"in_features=13, but a sample has 11 values .*\(4, 7, 11\)"),
        ((4, 7, 13, 2), "in_features=13, but a sample has 26 values"),
        ((0, 7, 13), "T = 0: needs at least one time step"),
        ((7, 13), r"needs a sequence \[T, B, 13\], got shape \(7, 13\).*lightning_snnprec.data.encode"),
    ],
)
def test_inputs_that_do_not_fit(shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=f"(?s)FCSNN: .*{message}"):
        FCSNN(13, (17,), 3)(torch.rand(shape))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"in_features": 0}, "in_features=0: needs an int >= 1"),
        ({"num_classes": True}, "num_classes=True: needs an int >= 1"),
        ({"hidden": ()}, r"hidden=\(\): needs the width of each hidden layer"),
        ({"hidden": 64}, "hidden=64: needs the width of each hidden layer"),
        ({"hidden": (64, 0)}, r"hidden\[1\]=0: needs an int >= 1"),
        ({"dropout": 1.0}, "dropout=1.0: needs a finite number >= 0 and < 1"),
        ({"bias": "no"}, "bias='no': needs True or False"),
        ({"init_gain": 0.0}, "init_gain=0.0: needs a finite number > 0"),
        ({"neuron": "relu"}, "neuron='relu': must be one of"),
        ({"tao": 2.0}, "Did you mean 'tau'"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FCSNN(**{"in_features": 13, "hidden": (17,), "num_classes": 3, **arguments})


def test_all_bad_arguments_are_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"(?s)2 arguments are wrong.*in_features=-1.*dropout=2"):
        FCSNN(-1, (17,), 3, dropout=2)


def test_the_tree_is_plain_linear_layers_and_neurons() -> None:
    net = FCSNN(13, (31, 17), 5)
    assert [(name, type(module)) for name, module in net.named_modules() if "." in name or name == "head"] == [
        ("body.fc1", nn.Linear),
        ("body.spike1", LIFNode),
        ("body.spike1.surrogate_function", type(LIFNode().surrogate_function)),
        ("body.fc2", nn.Linear),
        ("body.spike2", LIFNode),
        ("body.spike2.surrogate_function", type(LIFNode().surrogate_function)),
        ("head", nn.Linear),
    ]
    assert {name: tuple(value.shape) for name, value in net.state_dict().items()} == {
        "body.fc1.weight": (31, 13),
        "body.fc1.bias": (31,),
        "body.fc2.weight": (17, 31),
        "body.fc2.bias": (17,),
        "head.weight": (5, 17),
        "head.bias": (5,),
    }


def test_dropout_and_bias_change_the_parameters_as_documented() -> None:
    plain = FCSNN(13, (31, 17), 5)
    dropped = FCSNN(13, (31, 17), 5, dropout=0.5)
    dropped.load_state_dict(plain.state_dict())
    x_TBF = torch.rand(4, 7, 13)
    assert torch.equal(dropped.eval()(x_TBF), plain(x_TBF))
    assert all("bias" not in name for name in FCSNN(13, (31, 17), 5, bias=False).state_dict())


def test_init_gain_scales_the_hidden_weights_alone(seed: int) -> None:
    torch.manual_seed(seed)
    plain = FCSNN(13, (31, 17), 5).state_dict()
    torch.manual_seed(seed)
    scaled = FCSNN(13, (31, 17), 5, init_gain=8.0).state_dict()
    for name, value in plain.items():
        factor = 8.0 if name in ("body.fc1.weight", "body.fc2.weight") else 1.0
        assert torch.equal(scaled[name], factor * value), name


def test_a_deep_network_is_silent_by_default_and_fires_with_gain() -> None:
    x_TBF = torch.randn(16, 8, 256)
    last = {}
    for gain in (1.0, 8.0):
        net = FCSNN(256, (256,) * 20, 10, init_gain=gain)
        rate = FiringRate(net)
        with torch.no_grad(), rate.watch(net):
            net(x_TBF)
        last[gain] = rate.compute().layers["body.spike20"].item()
    assert last[1.0] == 0.0
    assert last[8.0] > 0.001


def test_copy_and_pickle_after_a_training_step() -> None:
    net = FCSNN(13, (31,), 5, "plif", dropout=0.2, init_gain=3.0)
    x_TBF = torch.rand(4, 7, 13)
    net(x_TBF).sum().backward()
    net.eval()
    for twin in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(twin(x_TBF), net(x_TBF))
        assert all(a.data_ptr() != b.data_ptr() for a, b in zip(twin.parameters(), net.parameters(), strict=True))
