"""Which exceptions are the user's to put right."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch import Trainer

from lightning_snnprec.cli.failures import explain
from lightning_snnprec.config.errors import UserError
from lightning_snnprec.config.location import recipe_groups
from lightning_snnprec.data import direct_coding
from lightning_snnprec.models import FCSNN
from lightning_snnprec.precision import prepare_model_for_precision


def caught(call: Callable[[], object]) -> Exception:
    with pytest.raises(Exception) as info:  # noqa: PT011 - any, so that it can be asked what `explain` makes of it
        call()
    return info.value


def test_user_errors_and_misconfigurations_are_told() -> None:
    assert explain(UserError("a\nb")) == "a\nb"
    assert explain(MisconfigurationException("a  b\n c")) == "a b c"
    error = caught(lambda: Trainer(accelerator="cuda"))
    if not torch.cuda.is_available():
        assert "can not run on your system" in str(explain(error))


def test_refusals_of_this_package_are_told() -> None:
    for call in (
        lambda: FCSNN(4, [3], 2)(torch.zeros(1, 2, 5)),
        lambda: direct_coding(torch.full((2, 3), torch.nan), 4),
        lambda: prepare_model_for_precision(torch.nn.Linear(3, 3), "cpu", {"mode": "fp8", "fp8_engine": "te"}),
    ):
        error = caught(call)
        assert explain(error) == str(error)


def test_faults_of_a_program_keep_their_traceback() -> None:
    net = FCSNN(4, [3], 2)
    net.head = torch.nn.Linear(7, 2)
    for call in (
        lambda: net(torch.zeros(1, 2, 4)),  # torch raises inside of our forward
        lambda: int("three"),
        lambda: recipe_groups(1),  # type: ignore[call-arg]
        lambda: [][1],
    ):
        error = caught(call)
        assert explain(error) is None, error


def test_an_error_that_was_never_raised_is_not_taken_for_a_refusal() -> None:
    assert explain(ValueError("made, not raised")) is None
