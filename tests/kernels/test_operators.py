"""The operators under torch's own checks, fake tensors, torch.compile and torch.export."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from lightning_snnprec.kernels import Neuron, operators, run_sequence
from lightning_snnprec.kernels.problem import encode
from tests.kernels.cases import STORAGES, current


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class Net(nn.Module):
    def __init__(self, **options: object) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(0.3))
        self.alpha = 4.0
        self.options = options

    def forward(self, x: Tensor, v: Tensor | None = None) -> tuple[Tensor, Tensor | None, Tensor | None]:
        neuron = Neuron("plif", alpha=self.alpha, **self.options)
        return run_sequence(x, v, neuron, torch.sigmoid(self.w), all_membranes=True)


def results(net: nn.Module, owner: Net, x: Tensor, v: Tensor | None) -> list[Tensor]:
    leaves = [t.clone().requires_grad_() for t in (x, v) if t is not None]
    spikes, last, every = net(*leaves)
    loss = (spikes * x).sum() + last.float().square().sum() + every.float().sum()
    return [spikes, last.float(), every.float(), *torch.autograd.grad(loss, [*leaves, owner.w])]


@pytest.mark.parametrize("storage", STORAGES[:4])  # the checks themselves multiply, which float8 tensors cannot
def test_torchs_checks(storage: torch.dtype | None) -> None:
    switches, numbers = encode(Neuron("plif", storage=storage))
    x, v, q = current(4, 3, 5).requires_grad_(), torch.randn(3, 5), torch.tensor(0.4, requires_grad=True)
    arguments = (x, v, q, list(switches), list(numbers), torch.float32, True, True, False)
    torch.library.opcheck(operators.neuron_forward, arguments)


@pytest.mark.parametrize("storage", [None, torch.bfloat16, torch.float8_e4m3fn])
def test_compiled_in_one_graph(storage: torch.dtype | None) -> None:
    net = Net(storage=storage)
    compiled = torch.compile(net, backend="aot_eager", fullgraph=True)
    for T, B, alpha in ((4, 3, 4.0), (4, 5, 4.0), (18, 5, 4.0), (4, 5, 3.0)):
        net.alpha = alpha
        x, v = current(T, B, 6), torch.randn(B, 6)
        for a, b in zip(results(compiled, net, x, v), results(net, net, x, v), strict=True):
            assert torch.equal(a, b)


def test_both_ways_in_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = Net(), current(5, 3, 4)
    quick = results(net, net, x, None)
    monkeypatch.setattr("lightning_snnprec.kernels.neuron._PLAIN", ())
    for a, b in zip(quick, results(net, net, x, None), strict=True):
        assert torch.equal(a, b)


def test_exported_without_gradients() -> None:
    net = Net().eval()
    x = current(4, 3, 6)
    exported = torch.export.export(net, (x,)).module()
    for a, b in zip(exported(x), net(x), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("shape", [(4, 3, 5), (18, 2, 3), (4, 0, 3)])
def test_fake_tensors_have_the_layout_of_real_ones(shape: tuple[int, ...]) -> None:
    net = Net(storage=torch.float8_e5m2)
    real = net(current(*shape))
    with FakeTensorMode(allow_non_fake_inputs=True):
        fake = net(torch.empty(shape))
    for a, b in zip(real, fake, strict=True):
        assert (a.shape, a.stride(), a.dtype) == (b.shape, b.stride(), b.dtype)


def test_nothing_is_kept_without_gradients() -> None:
    switches, numbers = encode(Neuron("lif", storage=torch.bfloat16))
    with torch.no_grad():
        *_, saved = operators.forward(current(20, 4), None, None, switches, numbers, torch.float32, False, False, False)
    assert saved.numel() == 0


def test_a_second_derivative_is_refused() -> None:
    x = current(3, 4).requires_grad_()
    (grad,) = torch.autograd.grad(run_sequence(x, None, Neuron("lif"))[0].sum(), x, create_graph=True)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(grad.sum(), x)
