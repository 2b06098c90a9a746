"""The plain torch that defines the kernels, against the neurons' own equations and against the oracle."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

from lightning_snnprec.kernels import Neuron, run_sequence
from lightning_snnprec.kernels.policy import membrane
from lightning_snnprec.kernels.switches import SURROGATES
from lightning_snnprec.neurons import reference, surrogate
from tests.kernels import oracle
from tests.kernels.cases import LOW, current, inverse_tau, policies, shapes

# FMA and another order of two additions against autograd in FP32, carried through a few time steps.
GRADIENT = {"rtol": 1e-4, "atol": 1e-5}


def gradients(outputs: tuple[Tensor, Tensor, Tensor], weights: list[Tensor], leaves: list[Tensor]) -> list[Tensor]:
    loss = sum((o.to(w.dtype) * w).sum() for o, w in zip(outputs, weights, strict=True))
    return list(torch.autograd.grad(loss, leaves))


def weights_for(x: Tensor) -> list[Tensor]:
    return [torch.randn(x.shape), torch.randn(x.shape[1:]), torch.randn(x.shape)]


@pytest.mark.parametrize("T", [1, 3, 18])
def test_it_equals_the_neurons_equations(T: int) -> None:
    for neuron in shapes():
        # 1 / tau exact, so that dividing and multiplying agree.
        neuron = neuron._replace(tau=4.0)
        x, v, w = current(T, 2, 9), torch.randn(2, 9), torch.randn(())
        sg = surrogate.from_name(neuron.surrogate, neuron.alpha)
        fire = (neuron.v_threshold, neuron.v_reset, sg, neuron.detach_reset, True)
        xs, vs, ws = ([t.clone().requires_grad_() for _ in range(2)] for t in (x, v, w))
        if neuron.kind == "if":
            theirs = reference.if_multi_step(xs[0], vs[0], *fire)
        elif neuron.kind == "lif":
            theirs = reference.lif_multi_step(xs[0], vs[0], neuron.tau, neuron.decay_input, *fire)
        else:
            theirs = reference.plif_multi_step(xs[0], vs[0], ws[0], neuron.decay_input, *fire)
        q = torch.sigmoid(ws[1]) if neuron.kind == "plif" else None
        ours = run_sequence(xs[1], vs[1], neuron, q, all_membranes=True)
        for a, b in zip(ours, theirs, strict=True):
            assert torch.equal(a, b)
        leaves = [[xs[i], vs[i], *([ws[i]] if q is not None else [])] for i in range(2)]
        weights = weights_for(x)
        pairs = zip(gradients(ours, weights, leaves[1]), gradients(theirs, weights, leaves[0]), strict=True)
        for a, b in pairs:
            torch.testing.assert_close(a, b, **GRADIENT)


@pytest.mark.parametrize("name", SURROGATES)
@pytest.mark.parametrize("alpha", [0.5, 1.0, 2.0, 25.0, 100.0])
def test_slopes_are_finite_and_those_of_the_surrogates(name: str, alpha: float) -> None:
    u = torch.tensor([-1000.0, -5.0, -0.5, -1e-4, 0.0, 1e-4, 0.5, 5.0, 1000.0, 1e30])
    x = (u + 1.0).reshape(1, -1).requires_grad_()
    spikes, _, _ = run_sequence(x, None, Neuron("if", surrogate=name, alpha=alpha, detach_reset=True))
    (grad,) = torch.autograd.grad(spikes.sum(), x)
    exact = surrogate.SURROGATES[name].slope((x.detach() - 1.0).double(), alpha)
    assert grad.isfinite().all()
    torch.testing.assert_close(grad.double(), exact, rtol=2e-5, atol=1e-7 * alpha)


@pytest.mark.parametrize("storage", LOW)
@pytest.mark.parametrize("x_dtype", [torch.float32, torch.bfloat16])
def test_policies_equal_the_oracle(storage: torch.dtype, x_dtype: torch.dtype) -> None:
    for neuron, policy in zip(shapes(), itertools.cycle(policies(storage)), strict=False):
        neuron = neuron._replace(**policy)
        T, N = 4, 300
        x, v, q = current(T, N, dtype=x_dtype), torch.randn(N), inverse_tau(neuron)
        leaves = [[t.clone().requires_grad_() for t in (x.float(), v, *([q] if q is not None else []))] for _ in "ab"]
        weights = weights_for(x)

        theirs = oracle.run(*leaves[0][:2], neuron, *leaves[0][2:], x_dtype=x_dtype, margin=0.0)
        x, v, *q = leaves[1]
        spikes, last, every = run_sequence(x.to(x_dtype), v, neuron, *q, all_membranes=True)
        assert spikes.dtype == x_dtype
        assert last.dtype == every.dtype == storage
        assert torch.equal(spikes.float(), theirs.spikes)
        assert torch.equal(every.float(), theirs.membranes)
        assert torch.equal(last.float(), theirs.membranes[-1])

        # The gradient of a membrane goes through the storage dtype.
        weights[1:] = [w.to(storage).float() for w in weights[1:]]
        weights[0] = weights[0].to(x_dtype).float()
        ours_g = gradients((spikes.float(), last.float(), every.float()), weights, leaves[1])
        theirs_g = gradients((theirs.spikes, theirs.membranes[-1], theirs.membranes), weights, leaves[0])
        limit = torch.finfo(x_dtype).eps
        for a, b in zip(ours_g, theirs_g, strict=True):
            far = (a - b).abs() > 1e-4 + limit * b.abs() + 1e-4 * b.abs()
            # Roundings of the gradient itself flip where FP32 sums differ in order.
            assert far.float().mean() <= (0.02 if neuron.backward != "fp32" else 0.0), (neuron, a[far], b[far])


@pytest.mark.parametrize("storage", [torch.float8_e4m3fn, torch.float8_e5m2, torch.float16])
def test_the_decision_survives_an_underflow_of_what_is_stored(storage: torch.dtype) -> None:
    threshold, tiny = 2.0**-6, torch.finfo(storage).smallest_normal * torch.finfo(storage).eps / 4
    x = torch.tensor([[threshold - tiny, threshold, threshold + tiny]]).requires_grad_()
    assert x[0, 0] < x[0, 1] < x[0, 2]
    neuron = Neuron("if", v_threshold=threshold, detach_reset=True, storage=storage)
    spikes, last, _ = run_sequence(x, None, neuron)
    (grad,) = torch.autograd.grad(last.float().sum(), x)
    # A hard reset passes the gradient of neurons that did not fire only.
    assert torch.equal(grad, 1.0 - spikes)
    assert torch.equal(spikes, (x.detach() >= threshold).float())


def test_infinity_and_nan_are_not_hidden() -> None:
    x = torch.tensor([[math.inf, math.nan, -math.inf, 1.0], [0.0, 9.0, 0.0, 0.0]])
    spikes, last, _ = run_sequence(x, None, Neuron("if"))
    assert spikes.tolist() == [[1, 0, 0, 1], [0, 0, 0, 0]]
    assert last[:2].isnan().all()
    assert last[2] == -math.inf
    assert last[3] == 0.0


def test_a_membrane_of_low_storage_is_what_a_second_call_starts_from() -> None:
    neuron = Neuron("lif", tau=3.0, storage=torch.float8_e4m3fn)
    x = current(6, 50)
    _, _, every = run_sequence(x, None, neuron, all_membranes=True)
    _, halfway, _ = run_sequence(x[:3], None, neuron)
    _, last, _ = run_sequence(x[3:], halfway, neuron)
    assert torch.equal(last.float(), every[-1].float())
    assert torch.equal(oracle.rounded(last.float(), membrane(neuron.storage).storage), last.float())
