from __future__ import annotations

import pickle
from typing import Any

import pytest
from torch import nn

from lightning_snnprec.models import NEURONS, neuron_factory
from lightning_snnprec.neurons import IFNode, LIFNode, ParametricLIFNode, surrogate


def test_a_name_makes_fresh_multi_step_neurons() -> None:
    for name, kind in {"if": IFNode, "lif": LIFNode, "plif": ParametricLIFNode}.items():
        assert NEURONS[name] is kind
        make = neuron_factory(name)
        first, second = make(), make()
        assert type(first) is kind
        assert first is not second
        assert first.surrogate_function is not second.surrogate_function
        assert first.step_mode == "m"


def test_without_options_a_neuron_is_its_class_default() -> None:
    for name, kind in NEURONS.items():
        made, default = neuron_factory(name)(), kind()
        assert repr(made) == repr(default)
        assert made.state_dict() == default.state_dict()


def test_options_reach_the_neuron() -> None:
    node: Any = neuron_factory(
        "lif",
        tau=3.5,
        decay_input=False,
        v_threshold=0.7,
        v_reset=None,
        surrogate="atan",
        alpha=5.0,
        detach_reset=True,
        store_v_seq=True,
        stateful=True,
    )()
    assert (node.tau, node.decay_input, node.v_threshold, node.v_reset) == (3.5, False, 0.7, None)
    assert (node.detach_reset, node.store_v_seq, node.stateful) == (True, True, True)
    assert type(node.surrogate_function) is surrogate.ATan
    assert node.surrogate_function.alpha == 5.0


def test_tau_of_a_parametric_neuron_is_its_initial_value() -> None:
    node: Any = neuron_factory("plif", tau=3.5)()
    # 1 / tau = sigmoid(w), Fang et al. 2021.
    assert node.w.sigmoid().item() == pytest.approx(1 / 3.5)


def test_a_factory_of_ones_own_is_used_as_it_is() -> None:
    def make() -> LIFNode:
        return LIFNode(tau=1.7)

    assert neuron_factory(make) is make
    assert isinstance(neuron_factory(IFNode)(), IFNode)


def test_a_named_factory_can_be_pickled() -> None:
    make = pickle.loads(pickle.dumps(neuron_factory("plif", tau=4.0, surrogate="erf")))
    assert repr(make()) == repr(neuron_factory("plif", tau=4.0, surrogate="erf")())


@pytest.mark.parametrize(
    ("neuron", "options", "message"),
    [
        ("life", {}, "neuron='life': must be one of 'if', 'lif', 'plif'. Did you mean 'lif'"),
        ("lif", {"tao": 2.0}, "option='tao': must be one of .*Did you mean 'tau'"),
        ("lif", {"tau": 0.5}, "tau=0.5"),
        ("plif", {"tau": 0.5}, "tau=0.5"),
        ("lif", {"surrogate": "atn"}, "surrogate='atn': .*Did you mean 'atan'"),
        ("lif", {"alpha": 0.0}, "alpha=0.0"),
        ("if", {"tau": 2.0, "v_threshold": 1.0}, "tau=2.0: an IF neuron has no leak"),
        ("if", {"decay_input": True}, "decay_input=True: an IF neuron has no leak"),
        (LIFNode, {"tau": 2.0}, "tau: options go with a neuron's name"),
        (LIFNode(), {}, r"LIFNode instance: needs a factory.*lambda: LIFNode\(...\)"),
        (3, {}, "neuron=3: needs one of 'if', 'lif', 'plif', or a factory"),
        (lambda: LIFNode(step_mode="s"), {}, "LIFNode with step_mode='s'; these models need 'm'"),
        (lambda: 0.5, {}, "made float, not a torch.nn.Module"),
    ],
)
def test_bad_neurons(neuron: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"(?s){message}"):
        neuron_factory(neuron, **options)


def test_a_foreign_multi_step_module_is_accepted() -> None:
    assert isinstance(neuron_factory(nn.ReLU)(), nn.ReLU)
