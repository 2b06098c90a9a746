from __future__ import annotations

import io
import math
import random

import numpy as np
import pytest
import torch

from lightning_snnprec.formats import E2M1, E4M3, E5M2, AmaxHistory, FloatSpec, quantize_delayed
from tests.formats.points import assert_same_bits

FLOAT32_MAX = float(np.finfo(np.float32).max)


class Kernel:
    """Transformer Engine's fused update, transcribed to one list of numbers."""

    def __init__(self, length: int, algo: str, margin: int, largest: float) -> None:
        self.rows, self.scale = [0.0] * length, np.float32(1.0)
        self.algo, self.largest = algo, np.float32(largest * 2.0**-margin)

    def record(self, amax: float) -> None:
        if amax > self.rows[0]:
            self.rows[0] = amax

    def update(self) -> None:
        last, amax = self.rows[0], 0.0
        if last != 0:
            rolled = [*self.rows[1:], last]
            amax = max(rolled)
            self.rows = [0.0, *rolled[1:]]
        if self.algo == "most_recent":
            amax = last
        if math.isfinite(amax) and amax > 0:
            with np.errstate(over="ignore"):
                scale = self.largest / np.float32(amax)
            self.scale = scale if np.isfinite(scale) else np.float32(FLOAT32_MAX)


def amaxes(count: int) -> list[float]:
    kinds = [0.0, 1e-45, math.inf, math.nan, *(random.uniform(0, 10) for _ in range(12))]
    return [float(np.float32(random.choice(kinds))) for _ in range(count)]


@pytest.mark.parametrize("algo", ["max", "most_recent"])
@pytest.mark.parametrize(("length", "margin"), [(1, 0), (2, 1), (5, 0), (16, 3)])
@pytest.mark.parametrize("spec", [E4M3, E5M2], ids=lambda spec: spec.name)
def test_history_and_scale_are_those_of_transformer_engine(
    algo: str, length: int, margin: int, spec: FloatSpec
) -> None:
    ours = AmaxHistory(length, algo, margin, spec)  # type: ignore[arg-type]
    kernel = Kernel(length, algo, margin, spec.max)
    for _ in range(60):
        for amax in amaxes(random.randrange(4)):
            ours.record(torch.tensor(amax) if random.random() < 0.5 else amax)
            kernel.record(amax)
        assert ours.history.tolist() == kernel.rows
        ours.update()
        kernel.update()
        assert ours.history.tolist() == kernel.rows
        assert ours.scale.item() == kernel.scale


def test_order_of_the_rows() -> None:
    history = AmaxHistory(4)
    for amax in (1.0, 2.0, 3.0, 4.0, 5.0):
        history.record(amax)
        history.update()
    assert history.history.tolist() == [0.0, 3.0, 4.0, 5.0]
    assert history.scale.item() == np.float32(448) / np.float32(5)


def test_silence_leaves_history_and_scale_alone() -> None:
    history = AmaxHistory(4)
    history.record(2.0)
    history.update()
    before = history.state()
    for _ in range(9):
        history.record(torch.zeros(()))
        history.update()
    assert torch.equal(history.history, before["history"])
    assert history.scale.item() == 224.0


def test_maximum_of_all_micro_batches_counts() -> None:
    history = AmaxHistory(4, "most_recent")
    for amax in (1.0, 7.0, 2.0):
        history.record(amax)
    history.update()
    assert history.scale.item() == 64.0


def test_inf_freezes_the_scale_as_long_as_it_is_in_the_history() -> None:
    history = AmaxHistory(3)
    scales = []
    for amax in (1.0, math.inf, 2.0, 2.0, 4.0):
        history.record(amax)
        history.update()
        scales.append(history.scale.item())
    assert scales == [448.0, 448.0, 448.0, 448.0, 112.0]


def test_tensors_are_written_in_place() -> None:
    history = AmaxHistory(3)
    views = history.history, history.scale, history.amax
    history.record(4.0)
    history.update()
    history.load_state(history.state())
    assert all(now is then for now, then in zip((history.history, history.scale, history.amax), views, strict=True))
    assert views[1].item() == 112.0


def test_state_survives_a_file_and_the_run_goes_on_alike() -> None:
    first = AmaxHistory(5, "max", 1, E5M2)
    for amax in (1.0, 9.0, 3.0):
        first.record(amax)
        first.update()
    first.record(2.0)
    file = io.BytesIO()
    torch.save(first.state(), file)
    file.seek(0)
    again = AmaxHistory(5, "max", 1, E5M2)
    again.load_state(torch.load(file, weights_only=True))
    for history in (first, again):
        history.update()
        history.record(4.0)
        history.update()
    assert torch.equal(first.history, again.history)
    assert torch.equal(first.scale, again.scale)


@pytest.mark.parametrize(
    ("length", "rows"),
    [(1, [6.0]), (2, [6.0, 5.0]), (3, [6.0, 4.0, 5.0]), (6, [6.0, 0.0, 0.0, 3.0, 4.0, 5.0])],
)
def test_another_length_keeps_the_newest(length: int, rows: list[float]) -> None:
    saved = AmaxHistory(4)
    for amax in (1.0, 2.0, 3.0, 4.0, 5.0):
        saved.record(amax)
        saved.update()
    saved.record(6.0)
    loaded = AmaxHistory(length)
    loaded.load_state(saved.state())
    assert loaded.history.tolist() == rows
    assert torch.equal(loaded.scale, saved.scale)


def test_another_format_or_margin_makes_the_scale_anew() -> None:
    saved = AmaxHistory(4)
    saved.record(2.0)
    saved.update()
    loaded = AmaxHistory(4, margin=1, spec=E5M2)
    loaded.load_state(saved.state())
    assert loaded.scale.item() == 57344 / 4
    fresh = AmaxHistory(4, spec=E2M1)
    fresh.load_state(AmaxHistory(4).state())
    assert fresh.scale.item() == 1.0


def test_bad_states_and_arguments_are_refused() -> None:
    state = AmaxHistory(4).state()
    with pytest.raises(ValueError, match="of version 1"):
        AmaxHistory(4).load_state({**state, "version": 7})
    del state["amax"]
    with pytest.raises(ValueError, match="'amax'"):
        AmaxHistory(4).load_state(state)
    with pytest.raises(ValueError, match=r"(?s)3 arguments.*length=0.*algo='mean'.*margin=0.5"):
        AmaxHistory(0, "mean", 0.5)  # type: ignore[arg-type]


def test_no_history_under_a_tensor_is_an_error_and_under_zeros_is_not() -> None:
    history = AmaxHistory(4)
    with pytest.raises(ValueError, match="the history's amax is 0 but the tensor is not"):
        quantize_delayed(torch.randn(5), history)
    with pytest.raises(ValueError, match="the history's amax is 0"):
        quantize_delayed(torch.tensor([0.0, math.nan]), history)
    found = quantize_delayed(torch.zeros(5), history)
    assert_same_bits(found.restored, torch.zeros(5))
    assert found.scale.values.item() == 1.0


def test_a_history_of_one_row_is_no_empty_history() -> None:
    history = AmaxHistory(1)
    history.record(448.0)
    history.update()
    assert history.history.tolist() == [0.0]
    assert quantize_delayed(torch.tensor([448.0]), history).restored.tolist() == [448.0]


def test_a_history_that_lags_saturates_visibly() -> None:
    history = AmaxHistory(4)
    history.record(1.0)
    history.update()
    x = torch.tensor([0.5, -1.0, 3.0, -8.0])
    found = quantize_delayed(x, history)
    assert found.saturated.tolist() == [False, False, True, True]
    assert found.restored.tolist() == [0.5, -1.0, 1.0, -1.0]
    assert (found.scale.update, found.scale.values.item()) == ("delayed_max", 448.0)
    assert history.history.tolist() == [0.0, 0.0, 0.0, 1.0]
    history.record(8.0)
    history.update()
    assert not quantize_delayed(x, history).saturated.any()
    assert found.scale.values.item() == 448.0
