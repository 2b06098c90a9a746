from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch

from lightning_snnprec.data import CODINGS, direct_coding, encode, latency_coding, poisson_coding

CODERS = {"direct": direct_coding, "poisson": poisson_coding, "latency": latency_coding}


def test_direct_shows_the_same_at_every_step_without_a_copy() -> None:
    x_BF = torch.rand(5, 7)
    x_TBF = direct_coding(x_BF, 3)
    assert torch.equal(x_TBF, torch.stack([x_BF, x_BF, x_BF]))
    assert x_TBF.stride(0) == 0
    assert x_TBF.untyped_storage().data_ptr() == x_BF.untyped_storage().data_ptr()


def test_poisson_draws_from_the_global_generator(seed: int) -> None:
    x_BF = torch.rand(5, 7)
    torch.manual_seed(seed)
    first = poisson_coding(x_BF, 9)
    torch.manual_seed(seed)
    assert torch.equal(first, (torch.rand(9, 5, 7) < x_BF).float())
    assert not torch.equal(first, poisson_coding(x_BF, 9))


def test_poisson_fires_with_probability_x_independently_over_time() -> None:
    steps = 20_001
    x_BF = torch.tensor([[0.0, 0.03, 0.5, 0.97, 1.0]])
    spikes_TF = poisson_coding(x_BF, steps).double().squeeze(1)
    assert set(spikes_TF.unique().tolist()) == {0.0, 1.0}
    assert spikes_TF[:, 0].sum() == 0
    assert spikes_TF[:, 4].sum() == steps
    p_F = x_BF[0, 1:4].double()
    # Six standard deviations of a binomial mean; a pair of neighbours both fire with probability p^2.
    sigma_F = (p_F * (1 - p_F) / steps).sqrt()
    assert ((spikes_TF[:, 1:4].mean(0) - p_F).abs() < 6 * sigma_F).all()
    both_F = (spikes_TF[1:, 1:4] * spikes_TF[:-1, 1:4]).mean(0)
    assert ((both_F - p_F**2).abs() < 12 * sigma_F).all()


@pytest.mark.parametrize("steps", [1, 2, 5, 8, 17])
def test_latency_fires_once_at_the_documented_step(steps: int) -> None:
    levels = range(17)
    x_BF = torch.tensor([[level / 16 for level in levels]])
    spikes_TF = latency_coding(x_BF, steps).squeeze(1)
    for level in levels:
        expected = torch.zeros(steps)
        if level > 0:
            # Python rounds exact halves to even, too.
            expected[round((1 - Fraction(level, 16)) * (steps - 1))] = 1
        assert torch.equal(spikes_TF[:, level], expected), (level, spikes_TF[:, level])


def test_latency_equals_spikingjelly_where_it_fires() -> None:
    encoding = pytest.importorskip("spikingjelly.activation_based.encoding")
    x_BF = torch.rand(6, 11).clamp(min=1e-6)
    encoder = encoding.LatencyEncoder(T=13, enc_function="linear")
    expected = torch.stack([encoder(x_BF) for _ in range(13)])
    assert torch.equal(latency_coding(x_BF, 13), expected)


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float64])
def test_any_real_dtype_becomes_float32(coding: str, dtype: torch.dtype, seed: int) -> None:
    x = torch.tensor([[0, 1, 1], [1, 0, 1]], dtype=dtype)
    torch.manual_seed(seed)
    coded = encode(x, 4, coding)
    torch.manual_seed(seed)
    assert coded.dtype == torch.float32
    assert torch.equal(coded, CODERS[coding](x.float(), 4))


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("shape", [(0, 7), (3,), (2, 1, 5, 4)])
def test_any_sample_shape_and_an_empty_batch(coding: str, shape: tuple[int, ...]) -> None:
    coded = encode(torch.rand(shape), 3, coding)
    assert coded.shape == (3, *shape)
    assert coded.dtype == torch.float32


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (math.nan, r"1 of 12 intensities are NaN or Inf.*nan_to_num"),
        (math.inf, r"1 of 12 intensities are NaN or Inf"),
        (-0.25, r"must lie in \[0, 1\], found -0.25 to 0.5.*255"),
        (255.0, r"must lie in \[0, 1\], found 0.5 to 255"),
    ],
)
def test_bad_values_are_refused(coding: str, bad: float, message: str) -> None:
    x = torch.full((3, 4), 0.5)
    x[2, 1] = bad
    with pytest.raises(ValueError, match=f"(?s){coding}_coding: .*{message}"):
        encode(x, 2, coding)


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("steps", [0, -1, True, 2.0, "4"])
def test_bad_time_steps_are_refused(coding: str, steps: object) -> None:
    with pytest.raises(ValueError, match=f"time_steps={steps!r}: needs an int >= 1"):
        encode(torch.rand(2, 3), steps, coding)  # type: ignore[arg-type]


def test_scalars_complex_numbers_and_unknown_codings_are_refused() -> None:
    with pytest.raises(ValueError, match=r"needs real intensities \[B, ...\], got torch.float32 of shape \(\)"):
        direct_coding(torch.tensor(0.5), 2)
    with pytest.raises(ValueError, match=r"got torch.complex64"):
        latency_coding(torch.zeros(2, dtype=torch.complex64), 2)
    with pytest.raises(ValueError, match=r"coding='poison': must be one of.*Did you mean 'poisson'"):
        encode(torch.rand(2, 3), 2, "poison")  # type: ignore[arg-type]


@pytest.mark.parametrize("coding", CODINGS)
def test_without_validation_no_value_is_read_back(coding: str) -> None:
    # A meta tensor has no values: reading one back to the host raises.
    x = torch.empty(3, 5, device="meta")
    assert encode(x, 4, coding, validate=False).shape == (4, 3, 5)
    with pytest.raises((NotImplementedError, RuntimeError), match="meta"):
        encode(x, 4, coding)
