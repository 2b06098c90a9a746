"""Membrane state that neurons carry from batch to batch, kept apart for training and evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from lightning_snnprec.neurons.state import begin_batch, carried_state, load_carried_state


class CarriedState:
    """Begins batches, and swaps the state that training carries out while an evaluation batch runs.

    Evaluation starts from rest after every training batch and at the start of a run, and carries its own state from
    batch to batch in between.

    Args:
        model: holds the neurons.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._evaluation: dict[str, Tensor] = {}

    def begin_training_batch(self) -> None:
        """Resets neurons, or detaches the state of those that carry it on."""
        self._evaluation = {}
        begin_batch(self._model)

    @contextmanager
    def evaluation_batch(self) -> Iterator[None]:
        """Context of one batch of validation, testing or prediction."""
        training = carried_state(self._model)
        load_carried_state(self._model, self._evaluation)
        begin_batch(self._model)
        try:
            yield
        finally:
            self._evaluation = carried_state(self._model)
            load_carried_state(self._model, training)
