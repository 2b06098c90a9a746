"""The neuron kernels inside torch.compile, CUDA graphs and training; what they keep for backward."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from lightning_snnprec.kernels import Neuron, run_sequence
from tests.kernels.cases import current


@pytest.fixture
def _fresh_compiler() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class Net(nn.Module):
    """Two layers of neurons, the second with a learnable time constant; no GEMM, which might sum in another order."""

    def __init__(self, storage: torch.dtype | None = None) -> None:
        super().__init__()
        self.first, self.second = nn.Parameter(torch.rand(48) + 0.5), nn.Parameter(torch.rand(48) + 0.5)
        self.w = nn.Parameter(torch.tensor(-0.3))
        self.storage = storage

    def forward(self, x: Tensor) -> Tensor:
        spikes, _, _ = run_sequence(x * self.first, None, Neuron("lif", storage=self.storage))
        current = (spikes + x) * self.second
        return run_sequence(current, None, Neuron("plif", storage=self.storage), torch.sigmoid(self.w))[0]


def gradients(net: nn.Module, owner: nn.Module, x: Tensor, weight: Tensor) -> list[Tensor]:
    spikes = net(x)
    return [spikes.detach(), *torch.autograd.grad((spikes * weight).sum(), list(owner.parameters()))]


@pytest.mark.parametrize("storage", [None, torch.float8_e4m3fn])
@pytest.mark.usefixtures("_fresh_compiler")
@pytest.mark.filterwarnings("ignore")  # torch's compiler has warnings of its own
def test_compiled_in_one_graph(storage: torch.dtype | None) -> None:
    net = Net(storage).cuda()
    compiled = torch.compile(net, fullgraph=True)
    for batch in (32, 40):
        x, weight = current(4, batch, 48, device="cuda"), torch.randn(4, batch, 48, device="cuda")
        for a, b in zip(gradients(compiled, net, x, weight), gradients(net, net, x, weight), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("storage", [None, torch.bfloat16, torch.float8_e5m2])
def test_captured_in_a_cuda_graph(storage: torch.dtype | None) -> None:
    net = Net(storage).cuda()
    x, weight = current(5, 32, 48, device="cuda"), torch.randn(5, 32, 48, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            gradients(net, net, x, weight)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = gradients(net, net, x, weight)
    for _ in range(2):
        x.normal_()
        graph.replay()
        for a, b in zip(captured, gradients(net, net, x, weight), strict=True):
            assert torch.equal(a, b)


def test_gradients_are_the_same_bits_every_time() -> None:
    x = current(5, 1000003, device="cuda")
    q = torch.tensor(0.4, device="cuda", requires_grad=True)
    grad = torch.randn_like(x)
    both = [torch.autograd.grad(run_sequence(x, None, Neuron("plif"), q)[0], q, grad)[0] for _ in range(2)]
    assert torch.equal(*both)


@pytest.mark.parametrize(
    ("x_dtype", "storage", "T", "kept"),
    [
        (torch.bfloat16, None, 16, 2.0),
        (torch.bfloat16, torch.bfloat16, 16, 2.0),
        (torch.bfloat16, torch.float8_e4m3fn, 64, 1.0),
        (torch.float32, torch.bfloat16, 64, 2.0),
        (torch.float32, torch.float8_e5m2, 4, 1.0),
        (torch.bfloat16, None, 64, 2.0 + 12 / 64),
    ],
)
def test_bytes_kept_for_backward(x_dtype: torch.dtype, storage: torch.dtype | None, T: int, kept: float) -> None:
    N = 2**18
    leaf = torch.randn(T, N, device="cuda", dtype=x_dtype, requires_grad=True)
    run_sequence(leaf, None, Neuron("lif", storage=storage))  # compiles, and checks itself
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    # The input is no leaf and has no other owner: it lives on only if backward needs it.
    spikes, _, _ = run_sequence(leaf * 1.0, None, Neuron("lif", storage=storage), last_membrane=False)
    held = torch.cuda.memory_allocated() - before - spikes.untyped_storage().nbytes()
    assert held / (T * N) == pytest.approx(kept, abs=0.01)


def test_nothing_is_kept_in_inference() -> None:
    x = torch.randn(64, 2**16, device="cuda", dtype=torch.bfloat16)
    neuron = Neuron("lif", storage=torch.float8_e4m3fn)
    with torch.inference_mode():
        run_sequence(x, None, neuron)
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        spikes, _, _ = run_sequence(x, None, neuron, last_membrane=False)
        assert torch.cuda.max_memory_allocated() - before == spikes.untyped_storage().nbytes()


def test_a_learnable_time_constant_moves_in_bf16_as_in_fp32() -> None:
    ends = []
    for dtype in (torch.float32, torch.bfloat16):
        generator = torch.Generator("cuda").manual_seed(1)
        w = torch.tensor(0.0, device="cuda", requires_grad=True)
        optimizer = torch.optim.Adam([w], lr=1e-3)
        for _ in range(2000):
            x = (torch.rand(8, 512, device="cuda", generator=generator) * 1.5).to(dtype)
            spikes, _, _ = run_sequence(x, None, Neuron("plif"), torch.sigmoid(w))
            (spikes.float().mean() - 0.05).square().backward()
            optimizer.step()
            optimizer.zero_grad()
        ends.append(1.0 / torch.sigmoid(w.detach().double()))
    assert abs(ends[0] - 2.0) > 0.3
    assert abs(ends[0] - ends[1]) < 0.02 * ends[0]
