"""Values of the neuron kernels on a GPU: against an FP64 oracle under the same policy, and against plain torch."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

from lightning_snnprec.kernels import Neuron, operators, plain, run_sequence, selfcheck
from lightning_snnprec.kernels.policy import membrane
from lightning_snnprec.kernels.problem import encode
from lightning_snnprec.kernels.switches import SURROGATES
from lightning_snnprec.neurons import surrogate
from tests.kernels import oracle
from tests.kernels.cases import KINDS, LOW, RESETS, current, inverse_tau, policies, shapes

SIZES = (1, 2, 3, 31, 127, 129, 1000003)
SHORT = (1, 2, 5)
LONG = 33

# FP32 arithmetic is a few roundings of 2^-24 off in every step, and the membrane carries a part of them on; closer to
# the threshold than that, FP32 and FP64 may decide differently.
MARGIN = 2e-6
EXCLUDED = 0.01
# FP32 sums of terms that cancel, over a few time steps; on top of half a unit of the dtype of the result.
GRADIENT = 2e-5
# Where the gradient of the membrane is rounded in every step, a flip is worth a unit of that dtype.
FLIPPED = 0.01


@pytest.fixture(autouse=True)
def _own_draws(request: pytest.FixtureRequest, seed: int) -> None:
    """Other sizes for every parameter of a test."""
    random.seed(f"{seed} {request.node.name}")


@pytest.fixture
def _unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves out the self-check, which would compile four kernels a policy; these tests compare all themselves."""
    monkeypatch.setattr(selfcheck, "ensure", lambda *_: None)


def compare(neuron: Neuron, T: int, N: int, x_dtype: torch.dtype) -> None:
    """Spikes, membranes and gradients of `neuron` against the FP64 oracle under the same policy."""
    policy = membrane(neuron.storage, neuron.forward, neuron.backward)
    x, v, q = current(T, N, dtype=x_dtype, device="cuda"), torch.randn(N, device="cuda"), inverse_tau(neuron, "cuda")
    v = oracle.rounded(v, policy.storage)
    ours = [t.clone().requires_grad_() for t in (x, v, *([q] if q is not None else []))]
    # 1 / tau of each neuron, so that the size of the terms of its gradient is known.
    theirs = [t.double().requires_grad_() for t in (x, v, *([q.expand(N)] if q is not None else []))]
    spikes, last, every = run_sequence(*ours[:2], neuron, *ours[2:], all_membranes=True)
    exact = oracle.run(*theirs[:2], neuron, *theirs[2:], x_dtype=x_dtype, margin=MARGIN)
    clear = exact.clear

    sure = torch.arange(T, device="cuda").unsqueeze(1) < exact.close_from
    excluded = 1.0 - sure.double().mean()
    assert excluded < EXCLUDED or N < 1000, f"{excluded:.4f} of all decisions are too close to call"
    assert torch.equal(spikes.double()[sure], exact.spikes[sure])
    assert torch.equal(last.float(), every[-1].float())
    far = (every.double() - exact.membranes).abs() > MARGIN * (1 + exact.membranes.abs())
    assert not far[:, clear].any()

    weights = [torch.randn(T, N, device="cuda") * clear, torch.randn(N, device="cuda") * clear]
    weights = [w.to(t.dtype) for w, t in zip(weights, (spikes, last), strict=True)]
    grads = torch.autograd.grad([spikes, last], ours, weights)
    expected = torch.autograd.grad([exact.spikes, exact.membranes[-1]], theirs, [w.double() for w in weights])
    low = policy.backward != torch.float32
    for a, b in zip(grads[:2], expected[:2], strict=True):
        size = b.abs().amax(0) if b.ndim == 2 else b.abs()
        far = (a.double() - b).abs() > torch.finfo(a.dtype).eps * b.abs() + GRADIENT * (1 + size)
        assert far.double().mean() <= (FLIPPED if low else 0.0), (neuron, T, N, x_dtype)
    if q is not None:
        limit = (FLIPPED if low else GRADIENT) * (1 + expected[2].abs().sum())
        assert (grads[2].double() - expected[2].sum()).abs() <= limit, (neuron, T, N, x_dtype)


@pytest.mark.parametrize("storage", [None, *LOW])
@pytest.mark.parametrize("v_reset", RESETS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("_unchecked")
def test_every_neuron_reset_surrogate_and_storage(kind: Any, v_reset: float | None, storage: torch.dtype) -> None:
    # Every surrogate is a kernel of its own to compile, so that all of them meet three of the storages only.
    names = SURROGATES if storage in (None, torch.bfloat16, torch.float8_e4m3fn) else random.sample(SURROGATES, 3)
    for name in names:
        neuron = Neuron(
            kind,
            v_threshold=random.uniform(0.7, 1.3),
            v_reset=v_reset,
            detach_reset=random.random() < 0.3,
            surrogate=name,
            alpha=random.uniform(0.5, 4.0),
            tau=random.uniform(1.2, 3.0),
            decay_input=random.random() < 0.7,
            storage=storage,
        )
        x_dtype = random.choice([torch.bfloat16, torch.bfloat16, torch.float32, torch.float16])
        compare(neuron, random.choice(SHORT), random.choice(SIZES), x_dtype)


@pytest.mark.parametrize("storage", [None, *LOW])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("_unchecked")
def test_more_time_steps_than_a_segment_has(kind: Any, storage: torch.dtype | None) -> None:
    neuron = Neuron(kind, v_reset=random.choice(RESETS), surrogate="atan", alpha=2.0, tau=1.7, storage=storage)
    compare(neuron, LONG, random.choice(SIZES), random.choice([torch.bfloat16, torch.float32]))


@pytest.mark.parametrize("storage", LOW)
@pytest.mark.usefixtures("_unchecked")
def test_every_arithmetic(storage: torch.dtype) -> None:
    for policy in policies(storage):
        kind, v_reset = random.choice(KINDS), random.choice(RESETS)
        compare(Neuron(kind, v_reset=v_reset, **policy), 2, random.choice(SIZES), torch.bfloat16)


@pytest.mark.parametrize("storage", [None, *LOW])
@pytest.mark.usefixtures("_unchecked")
def test_bits_are_those_of_plain_torch(storage: torch.dtype | None) -> None:
    # With a slope that takes neither exponential nor reciprocal, backward is exact too.
    for neuron in random.sample([*shapes()], 3):
        neuron, q = neuron._replace(storage=storage), inverse_tau(neuron, "cuda")
        switches, numbers = encode(neuron)
        for x_dtype in (torch.bfloat16, torch.float32):
            x, v = current(5, 4099, dtype=x_dtype, device="cuda"), torch.randn(4099, device="cuda")
            asked = (x, v, q, switches, numbers, x_dtype, True, True, True)
            results, defined = operators.forward(*asked), plain.forward(*asked)
            for a, b in zip(results, defined, strict=True):
                assert torch.equal(a.view(torch.uint8), b.view(torch.uint8))
            grads = [torch.randn_like(x), torch.randn(4099, device="cuda"), torch.randn_like(x, dtype=torch.float32)]
            rest = (x, results[3], v, q, switches, numbers, x_dtype, True, True, q is not None)
            pairs = zip(operators.backward(*grads, *rest), plain.backward(*grads, *rest), strict=True)
            assert all(torch.equal(a, b) for a, b in list(pairs)[:2])


@pytest.mark.parametrize("storage", LOW)
def test_kernels_pass_their_self_check(storage: torch.dtype) -> None:
    for x_dtype in (torch.bfloat16, torch.float32):
        selfcheck.verify(torch.device("cuda", 0), membrane(storage, "bf16", "bf16"), x_dtype)


@pytest.mark.parametrize("storage", [None, *LOW])
@pytest.mark.usefixtures("_unchecked")
def test_slopes_are_finite_everywhere_and_zero_in_the_tails(storage: torch.dtype | None) -> None:
    points = [-1000.0, -5.0, -0.5, -1e-4, 0.0, 1e-4, 0.5, 5.0, 1000.0]
    for name in SURROGATES:
        for alpha in (1.0, 2.0, 25.0, 100.0):
            x = (torch.tensor(points, device="cuda") + 1.0).unsqueeze(0).requires_grad_()
            neuron = Neuron("if", surrogate=name, alpha=alpha, detach_reset=True, storage=storage)
            (grad,) = torch.autograd.grad(run_sequence(x, None, neuron)[0].sum(), x)
            u = oracle.rounded(x.detach() - 1.0, membrane(storage).storage).double()
            exact = surrogate.SURROGATES[name].slope(u, alpha)
            assert grad.isfinite().all()
            assert ((grad - exact).abs() <= 1e-5 * exact + 1e-7 * alpha).all(), (name, alpha, grad, exact)


def test_slopes_stay_finite_for_membranes_beyond_their_storage() -> None:
    for storage in (torch.float16, torch.float8_e4m3fn, torch.float8_e5m2):
        x = torch.tensor([[1e30, -1e30, 1e5, -1e5]], device="cuda", requires_grad=True)
        spikes, _, _ = run_sequence(x, None, Neuron("if", storage=storage))
        (grad,) = torch.autograd.grad(spikes.sum(), x)
        assert spikes.tolist() == [[1.0, 0.0, 1.0, 0.0]]
        assert torch.equal(grad, torch.zeros_like(grad))


def test_small_currents_add_up_under_the_default_policy() -> None:
    for x_dtype in (torch.float32, torch.bfloat16):
        x = torch.full((700, 3), 0.0015, device="cuda", dtype=x_dtype)
        spikes, _, _ = run_sequence(x, None, Neuron("if"))
        first = spikes.float().argmax(0) + 1
        assert ((first - 667).abs() <= 1).all()
        assert spikes.sum(0).eq(1).all()
