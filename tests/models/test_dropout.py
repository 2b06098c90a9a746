from __future__ import annotations

from typing import Any

import pytest
import torch

from lightning_snnprec.models import TimeSharedDropout


def test_the_mask_is_one_per_sample_and_neuron_for_all_steps() -> None:
    x_TBN = torch.rand(5, 7, 301) + 0.1
    y_TBN = TimeSharedDropout(0.3)(x_TBN)
    dropped_TBN = y_TBN == 0
    assert torch.equal(dropped_TBN, dropped_TBN[0].expand_as(dropped_TBN))
    assert not torch.equal(dropped_TBN[0, 0], dropped_TBN[0, 1])
    torch.testing.assert_close(y_TBN[~dropped_TBN], x_TBN[~dropped_TBN] / 0.7)


def test_the_share_of_dropped_neurons_is_p() -> None:
    n, p = 100_003, 0.3
    dropped = (TimeSharedDropout(p)(torch.ones(1, 1, n)) == 0).double().mean().item()
    # Six standard deviations of a binomial mean.
    assert abs(dropped - p) < 6 * (p * (1 - p) / n) ** 0.5


def test_the_gradient_passes_the_same_mask() -> None:
    x_TBN = torch.rand(3, 2, 5, requires_grad=True)
    y_TBN = TimeSharedDropout(0.5)(x_TBN)
    y_TBN.sum().backward()
    assert torch.equal(x_TBN.grad, (y_TBN.detach() != 0) * 2.0)


def test_it_draws_from_torchs_generator(seed: int) -> None:
    dropout, x_TBN = TimeSharedDropout(0.5), torch.ones(2, 3, 41)
    torch.manual_seed(seed)
    first = dropout(x_TBN)
    torch.manual_seed(seed)
    assert torch.equal(first, dropout(x_TBN))


def test_evaluation_and_p_zero_give_the_input_back() -> None:
    x_TBN = torch.rand(3, 2, 5)
    assert TimeSharedDropout(0.5).eval()(x_TBN) is x_TBN
    assert TimeSharedDropout(0.0)(x_TBN) is x_TBN
    assert TimeSharedDropout(0.5)(x_TBN.bfloat16()).dtype == torch.bfloat16
    assert TimeSharedDropout(0.5)(torch.ones(2, 0, 5)).shape == (2, 0, 5)


@pytest.mark.parametrize("p", [1.0, -0.1, True, "0.5", float("nan")])
def test_bad_probability(p: Any) -> None:
    with pytest.raises(ValueError, match=f"TimeSharedDropout: p={p!r}: needs a finite number >= 0 and < 1"):
        TimeSharedDropout(p)
