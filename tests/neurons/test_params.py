from __future__ import annotations

import numpy as np
import pytest
import torch

from lightning_snnprec.neurons import IFNode, LIFNode, NeuronPolicy, ParametricLIFNode, surrogate, unsupported_policy
from lightning_snnprec.neurons.params import number_fault


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"tau": 1.0}, r"LIFNode: tau=1.0: needs a finite number > 1\..*IFNode"),
        ({"tau": float("inf")}, "tau=inf: needs a finite number > 1"),
        ({"tau": "2"}, "tau='2': needs a finite number"),
        ({"tau": True}, "tau=True: needs a finite number"),
        ({"v_threshold": "1.0"}, "v_threshold='1.0': needs a finite number"),
        ({"v_threshold": None}, "v_threshold=None: needs a finite number"),
        ({"v_threshold": float("nan")}, "v_threshold=nan: needs a finite number"),
        ({"v_threshold": torch.tensor(1.0)}, r"v_threshold=tensor\(1.\): needs a finite number"),
        ({"v_reset": False}, r"v_reset=False: needs a finite number \(hard reset\), or None \(soft reset\)"),
        ({"v_reset": "None"}, "v_reset='None': needs a finite number"),
        ({"decay_input": 1}, "decay_input=1: needs True or False"),
        ({"detach_reset": "yes"}, "detach_reset='yes': needs True or False"),
        ({"store_v_seq": None}, "store_v_seq=None: needs True or False"),
        ({"stateful": 0}, "stateful=0: needs True or False"),
        ({"step_mode": "multi"}, "step_mode='multi': must be one of 's', 'm'"),
        ({"surrogate_function": "atan"}, "surrogate_function='atan': needs a callable"),
        ({"surrogate_function": surrogate.ATan}, r"surrogate_function=ATan: needs an instance, write ATan\(\)"),
    ],
)
def test_bad_arguments_are_named(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        LIFNode(**arguments)


def test_all_faults_are_listed() -> None:
    listed = r"IFNode: 3 arguments are wrong:\n  - v_threshold='a'.*\n  - v_reset=True.*\n  - step_mode='x'"
    with pytest.raises(ValueError, match=listed):
        IFNode(v_threshold="a", v_reset=True, step_mode="x")
    with pytest.raises(ValueError, match=r"ParametricLIFNode: init_tau=0.5: needs a finite number > 1"):
        ParametricLIFNode(init_tau=0.5)


def test_ints_and_numpy_numbers_are_numbers() -> None:
    node = LIFNode(tau=3, v_threshold=np.float32(0.5), v_reset=-1)
    assert (node.tau, node.v_threshold, node.v_reset) == (3.0, 0.5, -1.0)
    assert all(type(value) is float for value in (node.tau, node.v_threshold, node.v_reset))
    assert number_fault("x", 0, above=0.0) == "x=0: needs a finite number > 0."


def test_an_attribute_set_to_a_bad_value_is_found_in_forward() -> None:
    x = torch.ones(2, 3)
    node = LIFNode()
    node.tau = 0.5
    with pytest.raises(ValueError, match=r"tau=0.5: needs a finite number > 1"):
        node(x)
    node = IFNode()
    node.step_mode = "multi"
    with pytest.raises(ValueError, match="step_mode='multi': must be one of 's', 'm'"):
        node(x)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"storage": torch.int8}, "storage=torch.int8: must be one of None, torch.float32"),
        ({"storage": torch.float64}, "storage=torch.float64: must be one of"),
        ({"forward": "tf32"}, "forward='tf32': must be one of 'fp32', 'bf16', 'fp16', 'fp8'"),
        ({"forward": "bf16"}, "forward='bf16' needs an explicit storage"),
        ({"storage": torch.bfloat16, "backward": "fp8"}, "backward='fp8' needs a float8 storage"),
    ],
)
def test_bad_policies_are_refused(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=f"NeuronPolicy: {said}"):
        NeuronPolicy(**arguments)


@pytest.mark.parametrize("policy", [None, NeuronPolicy(), NeuronPolicy(torch.float32)])
def test_plain_torch_follows_fp32_policies(policy: NeuronPolicy | None) -> None:
    assert unsupported_policy(policy) is None
    node = LIFNode()
    node.policy = policy
    node(torch.ones(2, 3, dtype=torch.bfloat16))
    assert node.v.dtype == torch.float32


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (NeuronPolicy(torch.bfloat16), "neuron_storage='bf16' needs"),
        (NeuronPolicy(torch.float32, "bf16"), "neuron_fwd='bf16' needs"),
        (
            NeuronPolicy(torch.float8_e5m2, "fp8", "fp8"),
            "neuron_storage='float8_e5m2', neuron_fwd='fp8', neuron_bwd='fp8'",
        ),
    ],
)
def test_other_policies_are_refused_before_computing(policy: NeuronPolicy, said: str) -> None:
    reason = unsupported_policy(policy)
    assert reason is not None
    assert said in reason
    node = LIFNode()
    node.policy = policy
    with pytest.raises(RuntimeError, match=f"LIFNode: {said}.*Use neuron_storage=None or 'fp32'"):
        node(torch.ones(2, 3))
    assert node.v == 0.0
