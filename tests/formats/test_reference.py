from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from lightning_snnprec.formats.reference import logsumexp, rmsnorm, softmax
from tests.formats.points import assert_same_bits

# Units in the last place of FP32 are 2**-23 = 1.2e-7 at most. An exponential adds the rounding of x - max (up to 40
# here), a relative error of 40 * 2**-24; a sum of non-negative terms, in blocks, adds a few units.
RELATIVE = 4e-6


def close(found: Tensor, wanted: Tensor, relative: float = RELATIVE) -> None:
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), wanted, rtol=relative, atol=1e-30)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dim", [-1, 0])
def test_equal_to_torch_in_fp64(dtype: torch.dtype, dim: int) -> None:
    x = (torch.randn(17, 33) * 5).to(dtype)
    wide = x.double()
    close(softmax(x, dim), torch.softmax(wide, dim))
    close(logsumexp(x, dim), torch.logsumexp(wide, dim))
    size = x.shape[dim]
    weight = torch.randn(size)
    shaped = weight.double() if dim == -1 else weight.double()[:, None]
    close(rmsnorm(x, weight, 1e-5, dim), wide / (wide.square().mean(dim, keepdim=True) + 1e-5).sqrt() * shaped)


def test_fp64_stays_fp64() -> None:
    x = torch.randn(3, 5, dtype=torch.float64)
    torch.testing.assert_close(softmax(x), torch.softmax(x, -1), rtol=1e-14, atol=0)
    torch.testing.assert_close(logsumexp(x), torch.logsumexp(x, -1), rtol=1e-14, atol=0)
    assert rmsnorm(x).dtype == torch.float64


def test_cancellation_of_a_large_offset() -> None:
    x = torch.randn(9, 65).bfloat16().float() + 2.0**14
    close(softmax(x), torch.softmax(x.double(), -1))
    close(softmax(x), softmax(x - 2.0**14).double(), 1e-12)
    # Units in the last place are 2**-9 at 2**14.
    assert (logsumexp(x) - 2.0**14 - logsumexp(x - 2.0**14)).abs().max() <= 2.0**-9
    # exp(x) itself overflows, and underflows, here.
    assert logsumexp(torch.tensor([1e4, 1e4])).item() == pytest.approx(1e4 + math.log(2), rel=1e-7)
    assert logsumexp(torch.tensor([-1e4, -1e4])).item() == pytest.approx(-1e4 + math.log(2), rel=1e-7)


def test_long_sums() -> None:
    count = 1 << 20
    x = torch.zeros(count, dtype=torch.bfloat16)
    assert logsumexp(x).item() == pytest.approx(math.log(count), rel=1e-6)
    assert torch.equal(softmax(x), torch.full((count,), 1.0 / count))
    # The same sum kept in BF16 stands still at 256.
    stuck = torch.tensor(0.0).bfloat16()
    for _ in range(300):
        stuck = stuck + torch.ones((), dtype=torch.bfloat16)
    assert stuck.item() == 256.0
    x = torch.randn(count)
    close(softmax(x), torch.softmax(x.double(), -1))
    close(rmsnorm(x), x.double() / (x.double().square().mean() + 1e-6).sqrt())


def test_rows_wholly_masked() -> None:
    x = torch.randn(3, 5)
    keep = torch.ones(3, 5, dtype=torch.bool)
    keep[1] = False
    keep[2, 3:] = False
    found = softmax(x, keep=keep)
    assert_same_bits(found[1], torch.zeros(5))
    assert_same_bits(found[0], softmax(x[0]))
    assert_same_bits(found[2], torch.cat([softmax(x[2, :3]), torch.zeros(2)]))
    sums = logsumexp(x, keep=keep)
    assert sums[1].item() == -math.inf
    assert sums[2] == logsumexp(x[2, :3])
    assert_same_bits(softmax(torch.full((4,), -math.inf)), torch.zeros(4))
    assert softmax(x, keep=torch.zeros(5, dtype=torch.bool)).sum() == 0


def test_nan_takes_its_row_unless_masked() -> None:
    x = torch.randn(2, 5)
    x[1, 2] = math.nan
    keep = torch.ones(2, 5, dtype=torch.bool)
    keep[1, 2] = False
    for function in (softmax, rmsnorm):
        found = function(x)
        assert found[1].isnan().all()
        assert found[0].isfinite().all()
    assert logsumexp(x).isnan().tolist() == [False, True]
    assert softmax(x, keep=keep).isfinite().all()
    assert logsumexp(x, keep=keep).isfinite().all()


def test_infinities() -> None:
    x = torch.tensor([1.0, math.inf, 2.0])
    assert softmax(x).isnan().any()
    assert logsumexp(x).item() == math.inf
    assert logsumexp(torch.tensor([math.inf, math.nan])).isnan()
    found = rmsnorm(x)
    assert found[1].isnan()
    assert found[[0, 2]].tolist() == [0.0, 0.0]
    assert_same_bits(softmax(torch.tensor([0.0, -math.inf])), torch.tensor([1.0, 0.0]))


@pytest.mark.parametrize("size", [1e-30, 1e-3, 1e20, 3e38])
def test_rmsnorm_of_every_finite_magnitude(size: float) -> None:
    x = torch.rand(3, 64).clamp(min=0.1) * size
    wide = x.double()
    close(rmsnorm(x), wide / (wide.square().mean(-1, keepdim=True) + 1e-6).sqrt())
    assert_same_bits(rmsnorm(torch.zeros(2, 3)), torch.zeros(2, 3))


def test_gradients_flow_and_are_right() -> None:
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    keep = torch.tensor([True, True, True, True, False])
    assert torch.autograd.gradcheck(lambda t: softmax(t, keep=keep), x)
    assert torch.autograd.gradcheck(lambda t: logsumexp(t, keep=keep), x)
    assert torch.autograd.gradcheck(lambda t: rmsnorm(t * 3), x)


def test_bad_arguments_are_refused() -> None:
    x = torch.randn(3, 5)
    for function in (softmax, logsumexp):
        with pytest.raises(ValueError, match="keep has torch"):
            function(x, keep=torch.ones(5))
        with pytest.raises(ValueError, match=r"\(3,\): needs bool that broadcasts to \(3, 5\)"):
            function(x, keep=torch.ones(3, dtype=torch.bool))
        with pytest.raises(ValueError, match="needs a floating point tensor"):
            function(torch.ones(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="eps=0"):
        rmsnorm(x, eps=0)
    with pytest.raises(ValueError, match=r"weight has shape \(3,\); a row has 5"):
        rmsnorm(x, torch.ones(3))
