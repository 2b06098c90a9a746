from __future__ import annotations

import pytest
import torch

from lightning_snnprec.formats import NVFP4, quantize_blocks, random_hadamard, random_hadamard_inverse, random_signs
from tests.formats.points import assert_same_bits


def sylvester() -> torch.Tensor:
    """H[i, j] = (-1) ** (number of ones common to i and j)."""
    return torch.tensor([[(-1.0) ** (i & j).bit_count() for j in range(16)] for i in range(16)], dtype=torch.float64)


def test_transform_is_the_signed_hadamard_matrix() -> None:
    x, signs = torch.randn(3, 5, 48, dtype=torch.float64), random_signs()
    wanted = ((x.unflatten(-1, (3, 16)) * signs) @ sylvester() / 4).flatten(-2)
    torch.testing.assert_close(random_hadamard(x, signs), wanted, rtol=1e-14, atol=1e-14)


def test_transform_of_integers_is_exact() -> None:
    x, signs = torch.randint(-100, 100, (7, 32)).float(), random_signs()
    wanted = ((x.unflatten(-1, (2, 16)) * signs).double() @ sylvester() / 4).flatten(-2).float()
    assert_same_bits(random_hadamard(x, signs) + 0.0, wanted + 0.0)


def test_transform_is_orthonormal() -> None:
    signs = random_signs()
    matrix = random_hadamard(torch.eye(16, dtype=torch.float64), signs)
    torch.testing.assert_close(matrix @ matrix.t(), torch.eye(16, dtype=torch.float64), rtol=0, atol=1e-15)


def test_inverse_undoes_it() -> None:
    signs = random_signs()
    whole = torch.randint(-64, 64, (5, 64)).float()
    assert torch.equal(random_hadamard_inverse(random_hadamard(whole, signs), signs), whole)
    x = torch.randn(5, 64)
    torch.testing.assert_close(random_hadamard_inverse(random_hadamard(x, signs), signs), x, rtol=1e-6, atol=1e-6)


def test_product_of_both_operands_is_unchanged() -> None:
    a, b, signs = torch.randn(6, 32).double(), torch.randn(7, 32).double(), random_signs()
    torch.testing.assert_close(
        random_hadamard(a, signs) @ random_hadamard(b, signs).t(), a @ b.t(), rtol=1e-12, atol=1e-12
    )


def test_signs_are_of_the_generator_and_matter() -> None:
    signs, again = (random_signs(torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(signs, again)
    assert set(signs.tolist()) == {1.0, -1.0}
    x = torch.randn(2, 16)
    assert not torch.equal(random_hadamard(x, signs), random_hadamard(x, -signs))
    assert not torch.equal(random_hadamard(x, signs), random_hadamard(x, torch.ones(16)))


def test_outliers_cost_nvfp4_less_after_the_transform() -> None:
    x = torch.randn(512, 128)
    x[:, ::16] *= 50.0
    signs = random_signs()
    small = torch.ones(128, dtype=torch.bool)
    small[::16] = False
    plain = quantize_blocks(x, NVFP4).restored
    spread = random_hadamard_inverse(quantize_blocks(random_hadamard(x, signs), NVFP4).restored, signs)
    lost = [(restored[:, small] == 0).double().mean().item() for restored in (plain, spread)]
    assert lost[0] > 0.5
    assert lost[1] < lost[0] / 2


def test_half_inputs_are_computed_in_fp32() -> None:
    x, signs = torch.randn(2, 16).bfloat16(), random_signs()
    assert_same_bits(random_hadamard(x, signs), random_hadamard(x.float(), signs))


def test_bad_sizes_and_signs_are_refused() -> None:
    with pytest.raises(ValueError, match=r"multiples of 16; x has \(2, 24\)"):
        random_hadamard(torch.ones(2, 24), torch.ones(16))
    with pytest.raises(ValueError, match="16 signs, each 1 or -1"):
        random_hadamard(torch.ones(2, 32), torch.ones(32))
    with pytest.raises(ValueError, match="16 signs, each 1 or -1"):
        random_hadamard_inverse(torch.ones(2, 16), torch.zeros(16))
