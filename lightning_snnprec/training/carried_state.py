"""Membrane state that neurons carry from batch to batch, kept apart for training and evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from lightning_snnprec.neurons.state import begin_batch, carried_state, load_carried_state


class CarriedState:
    """Begins batches, and swaps the state that training carries out while an evaluation batch runs.

    Evaluation starts from rest at the first batch of each dataloader, and carries its own state from batch to batch.

    Args:
        model: holds the neurons.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._evaluation: dict[str, Tensor] = {}
        self._at_start: dict[str, Tensor] | None = None

    def next_training_batch(self) -> None:
        """Tells that the training steps to come belong to a new batch."""
        self._at_start = None

    def begin_training_step(self) -> None:
        """Resets neurons, or detaches the state of those that carry it on.

        A further step on the same batch (an optimizer that evaluates its closure several times) starts from the state
        that the first one started from.
        """
        if self._at_start is not None:
            load_carried_state(self._model, self._at_start)
        begin_batch(self._model)
        self._at_start = carried_state(self._model)

    def begin_evaluation(self) -> None:
        """Puts evaluation at rest: the first batch of a dataloader follows."""
        self._evaluation = {}

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
