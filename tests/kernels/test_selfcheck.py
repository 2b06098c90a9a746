from __future__ import annotations

import itertools

import pytest
import torch

from lightning_snnprec.kernels import Neuron, plain, selfcheck
from lightning_snnprec.kernels.policy import Membrane, membrane
from lightning_snnprec.kernels.problem import encode
from tests.kernels.cases import LOW, policies

CPU = torch.device("cpu")


def test_every_result_is_exact_in_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    # The check is meant to find wrong stores, not FMA: nothing may round but what the policy rounds.
    rounded = []

    def recording(v: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        rounded.append(v.double())
        return v

    monkeypatch.setattr(plain, "_rounded", recording)
    for x_dtype in (torch.float32, torch.bfloat16, torch.float16):
        grid = 32.0 if x_dtype == torch.bfloat16 else 256.0
        x = selfcheck._dyadic(4, 64, 4 * grid, grid, CPU).to(x_dtype)
        switches, numbers = selfcheck._terms(Membrane())
        results = plain.forward(x, None, None, switches, numbers, x_dtype, True, True, True)
        grad = selfcheck._dyadic(4, 64, 8.0, 4.0, CPU).to(x_dtype)
        plain.backward(grad, None, None, x, results[3], None, None, switches, numbers, x_dtype, True, True, False)
    assert all(torch.equal(v * 2.0**20, (v * 2.0**20).round()) for v in rounded)
    assert all(v.abs().max() < 2.0**4 for v in rounded)


def test_nothing_is_checked_off_cuda_and_for_fp32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selfcheck, "verify", lambda *_: pytest.fail("checked"))
    for storage, device in itertools.product(LOW, (CPU, torch.device("meta"))):
        for policy in policies(storage):
            selfcheck.ensure(device, encode(Neuron("if", **policy))[0], torch.bfloat16)
    selfcheck.ensure(torch.device("cuda"), encode(Neuron("if"))[0], torch.bfloat16)


def test_a_policy_is_checked_once_a_device_and_input_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = []
    monkeypatch.setattr(selfcheck, "_passed", set())
    monkeypatch.setattr(selfcheck, "verify", lambda *given: checked.append(given))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
    devices = [torch.device("cuda", 0), torch.device("cuda", 1)]
    switches, _ = encode(Neuron("if", storage=torch.bfloat16))
    for capturing, device, x_dtype in itertools.product((True, False, False), devices, (torch.bfloat16, torch.float32)):
        selfcheck.ensure(device, switches, x_dtype)
        selfcheck.check_policy(device, membrane(torch.bfloat16), x_dtype)
        assert capturing is False or checked == []
    assert len(checked) == 4
