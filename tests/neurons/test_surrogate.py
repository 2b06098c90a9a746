from __future__ import annotations

import copy
import math
import pickle
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from lightning_snnprec.neurons import IFNode, surrogate
from lightning_snnprec.neurons.surrogate import SURROGATES, Surrogate, from_name
from tests.neurons import tolerances

# Written down a second time, on purpose, in FP64.
FORMULAS: dict[str, Callable[[float, float], float]] = {
    "sigmoid": lambda u, a: a * math.exp(-abs(a * u)) / (1 + math.exp(-abs(a * u))) ** 2,
    "atan": lambda u, a: a / (2 * (1 + (math.pi / 2 * a * u) ** 2)),
    "piecewise_quadratic": lambda u, a: max(0.0, a - a**2 * abs(u)),
    "piecewise_exp": lambda u, a: a / 2 * math.exp(-a * abs(u)),
    "soft_sign": lambda u, a: a / 2 / (1 + a * abs(u)) ** 2,
    "super_spike": lambda u, a: a / (1 + abs(u)) ** 2,
    "erf": lambda u, a: a / math.sqrt(math.pi) * math.exp(-((a * u) ** 2)),
}
PRIMITIVES = [name for name in SURROGATES if name != "super_spike"]
FAR_AND_NEAR = (-1000.0, -5.0, -0.5, -1e-4, 0.0, 1e-4, 0.5, 5.0, 1000.0)
DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def _gradient(function: Callable[[Tensor], Tensor], u: Tensor, grad: Tensor | None = None) -> Tensor:
    leaf = u.clone().requires_grad_()
    (result,) = torch.autograd.grad(function(leaf), leaf, torch.ones_like(u) if grad is None else grad)
    return result


def _expected(name: str, u: Tensor, alpha: float) -> Tensor:
    return torch.tensor([FORMULAS[name](value, alpha) for value in u.double().tolist()], dtype=torch.float64)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("alpha", [1.0, 2.0, 25.0, 100.0])
@pytest.mark.parametrize("name", SURROGATES)
def test_slope_is_finite_and_follows_its_formula(name: str, alpha: float, dtype: torch.dtype) -> None:
    u = torch.cat([torch.tensor(FAR_AND_NEAR), torch.randn(53) / alpha]).to(dtype)
    slope = _gradient(from_name(name, alpha), u)
    assert slope.dtype == dtype
    assert torch.isfinite(slope).all()
    expected = _expected(name, u, alpha)
    torch.testing.assert_close(slope.double(), expected, **tolerances.slope(dtype, alpha))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("alpha", [1.0, 2.0, 25.0, 100.0])
@pytest.mark.parametrize("name", SURROGATES)
def test_neuron_with_half_input_has_the_slope_of_the_unrounded_membrane(
    name: str, alpha: float, dtype: torch.dtype
) -> None:
    node = IFNode(surrogate_function=from_name(name, alpha), step_mode="s", v_reset=None, detach_reset=True)
    node.v = torch.tensor(FAR_AND_NEAR) + 1.0
    u = (node.v - 1.0).double()
    spikes = node(torch.zeros(len(FAR_AND_NEAR), dtype=dtype, requires_grad=True))
    assert torch.equal(spikes.double(), (u >= 0).double())
    node.reset()
    node.v = torch.tensor(FAR_AND_NEAR) + 1.0
    slope = _gradient(node, torch.zeros(len(FAR_AND_NEAR), dtype=dtype))
    assert slope.dtype == dtype
    torch.testing.assert_close(slope.double(), _expected(name, u, alpha), **tolerances.slope(dtype, alpha))


@pytest.mark.parametrize("name", ["sigmoid", "piecewise_quadratic", "piecewise_exp", "erf"])
def test_tails_are_exactly_zero(name: str) -> None:
    u = torch.tensor([-1000.0, 1000.0])
    assert torch.equal(_gradient(from_name(name), u), torch.zeros(2))


@pytest.mark.parametrize("name", SURROGATES)
def test_slope_is_finite_at_the_ends_of_the_range(name: str) -> None:
    for dtype in DTYPES:
        u = torch.tensor([-torch.finfo(dtype).max, torch.finfo(dtype).max, torch.finfo(dtype).tiny], dtype=dtype)
        assert torch.isfinite(_gradient(from_name(name), u)).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", SURROGATES)
def test_forward_is_a_step_that_is_one_at_zero(name: str, dtype: torch.dtype) -> None:
    u = torch.tensor([-math.inf, -1e-3, -0.0, 0.0, 1e-3, math.inf, math.nan], dtype=dtype, requires_grad=True)
    expected = torch.tensor([0, 0, 1, 1, 1, 1, 0], dtype=dtype)
    spikes = from_name(name)(u)
    assert torch.equal(spikes, expected)
    assert spikes.requires_grad
    with torch.no_grad():
        assert torch.equal(from_name(name)(u), expected)


@pytest.mark.parametrize("name", SURROGATES)
def test_nan_gives_nan_gradients(name: str) -> None:
    assert torch.isnan(_gradient(from_name(name), torch.tensor([math.nan]))).all()


@pytest.mark.parametrize("name", PRIMITIVES)
def test_slope_is_the_derivative_of_the_primitive(name: str) -> None:
    made = from_name(name, 0.5 + 3 * torch.rand(()).item(), spiking=False)
    u = torch.randn(31, dtype=torch.float64)
    torch.testing.assert_close(_gradient(made, u), made.slope(u, made.alpha), rtol=1e-10, atol=1e-12)
    away_from_kinks = u[(u.abs() - 1 / made.alpha).abs() > 1e-3]
    assert torch.autograd.gradcheck(made, away_from_kinks.requires_grad_())


@pytest.mark.parametrize("name", PRIMITIVES)
def test_primitive_rises_from_zero_to_one(name: str) -> None:
    for dtype in DTYPES:
        ends = from_name(name, 100.0, spiking=False)(torch.tensor([-1000.0, 0.0, 1000.0], dtype=dtype))
        assert ends.dtype == dtype
        torch.testing.assert_close(ends.float(), torch.tensor([0.0, 0.5, 1.0]), rtol=0, atol=1e-4)
        far = torch.tensor([-torch.finfo(dtype).max, torch.finfo(dtype).max], dtype=dtype)
        assert torch.isfinite(_gradient(from_name(name, 25.0, spiking=False), far)).all()


@pytest.mark.parametrize("name", SURROGATES)
def test_second_derivative(name: str) -> None:
    made = from_name(name)
    u = torch.randn(17, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(made(u).sum(), u, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), u)
    (expected,) = torch.autograd.grad(made.slope(u, made.alpha).sum(), u)
    assert torch.equal(second, expected)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
@pytest.mark.parametrize("name", SURROGATES)
def test_copies_are_equal_and_independent(name: str, copied: Callable[[Surrogate], Surrogate]) -> None:
    made = from_name(name, 1.5)
    u = torch.randn(9)
    _gradient(made, u)
    twin = copied(made)
    assert torch.equal(_gradient(twin, u), _gradient(made, u))
    made.alpha = 4.0
    assert twin.alpha == 1.5
    assert not made.state_dict()


def test_one_instance_used_twice_keeps_its_graphs_apart() -> None:
    made = surrogate.ATan()
    u, w = torch.randn(5, requires_grad=True), torch.randn(5, requires_grad=True)
    first, second = made(u), made(w)
    assert torch.equal(torch.autograd.grad(second.sum(), w)[0], _gradient(made, w.detach()))
    assert torch.equal(torch.autograd.grad(first.sum(), u)[0], _gradient(made, u.detach()))


def test_alpha_can_be_annealed_and_is_checked() -> None:
    made = surrogate.Sigmoid()
    made.alpha = 8
    assert torch.equal(_gradient(made, torch.zeros(1)), torch.tensor([2.0]))
    for alpha in (0.0, -1, float("nan"), True, "4", torch.tensor(2.0)):
        with pytest.raises(ValueError, match=r"Sigmoid: alpha=.*: needs a finite number > 0"):
            made.alpha = alpha
        with pytest.raises(ValueError, match=r"Erf: alpha=.*: needs a finite number > 0"):
            surrogate.Erf(alpha)
    assert made.alpha == 8.0


def test_super_spike_has_no_primitive() -> None:
    with pytest.raises(ValueError, match=r"SuperSpike: spiking=False: .* no primitive"):
        surrogate.SuperSpike(spiking=False)
    made = surrogate.SuperSpike()
    with pytest.raises(ValueError, match="SuperSpike: spiking=False"):
        made.set_spiking_mode(False)
    assert made.spiking


def test_spiking_can_be_switched_off_and_on() -> None:
    made = surrogate.Sigmoid()
    u = torch.randn(5)
    made.set_spiking_mode(False)
    assert torch.equal(made(u), torch.sigmoid(4.0 * u))
    made.set_spiking_mode(True)
    assert torch.equal(made(u), (u >= 0).float())
    with pytest.raises(ValueError, match="spiking='no': needs True or False"):
        made.set_spiking_mode("no")


def test_from_name_tells_near_names() -> None:
    assert isinstance(from_name("erf", 3), surrogate.Erf)
    assert from_name("soft_sign").alpha == 2.0
    with pytest.raises(ValueError, match=r"'softsign': must be one of 'sigmoid'.* Did you mean 'soft_sign'\?"):
        from_name("softsign")


def test_repr_shows_the_parameters() -> None:
    assert repr(surrogate.ATan(3)) == "ATan(alpha=3.0, spiking=True)"
