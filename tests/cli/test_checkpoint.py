"""Checkpoints that cannot be used: exit status 2, the file's name, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from lightning_snnprec.cli.checkpoint import read_checkpoint
from lightning_snnprec.config.errors import UserError
from tests.cli.conftest import QUICK, Snnprec

pytestmark = pytest.mark.filterwarnings("ignore:The dirpath has changed from:UserWarning")
Change = Callable[[dict[str, Any]], object]
VALIDATE = ("validate",)
RESUME = ("fit", "--resume")


def changed(here: Path, trained: Path, change: Change) -> Path:
    content = torch.load(trained / "checkpoints" / "last.ckpt", weights_only=True)
    change(content)
    torch.save(content, here / "it.ckpt")
    return here / "it.ckpt"


def only_weights(content: dict[str, Any]) -> None:
    for key in [key for key in content if key != "state_dict"]:
        del content[key]


@pytest.mark.parametrize("command", [VALIDATE, RESUME])
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (only_weights, "is no Lightning checkpoint: it has no 'pytorch-lightning_version'"),
        (lambda content: content.pop("pytorch-lightning_version"), "is no Lightning checkpoint"),
        (lambda content: content.update({"pytorch-lightning_version": "?"}), "is no Lightning checkpoint"),
        (lambda content: content.pop("state_dict"), "is no Lightning checkpoint: it has no 'state_dict'"),
        (
            lambda content: content["SNNPrecision"].pop("config"),
            "does not fit this run, or is damaged: ValueError: not",
        ),
        (lambda content: content["SNNPrecision"].update(version=99), "damaged: ValueError: the precision state has"),
        (lambda content: content["SNNPrecision"].clear(), ""),
    ],
)
def test_foreign_content(
    snnprec: Snnprec, here: Path, trained: Path, command: tuple[str, ...], change: Change, told: str
) -> None:
    path = changed(here, trained, change)
    outcome = snnprec(*command, str(path), *QUICK, "trainer.max_epochs=2")
    assert outcome.status == (2 if told else 0)
    assert told in outcome.complaint
    assert "Traceback" not in outcome.err
    if told:
        assert f"{path} " in outcome.complaint
        assert [file.name for file in here.iterdir()] == ["it.ckpt"]


@pytest.mark.parametrize("key", ["optimizer_states", "lr_schedulers", "loops"])
def test_weights_alone_are_evaluated_and_not_resumed(snnprec: Snnprec, here: Path, trained: Path, key: str) -> None:
    path = changed(here, trained, lambda content: content.pop(key))
    assert snnprec("validate", str(path), *QUICK).status == 0
    outcome = snnprec("fit", "--resume", str(path), *QUICK, "trainer.max_epochs=2")
    assert outcome.status == 2
    assert f"{path} cannot be resumed: it has no {key}" in outcome.complaint


def test_the_state_of_another_optimizer(snnprec: Snnprec, here: Path, trained: Path) -> None:
    path = changed(here, trained, lambda content: content["optimizer_states"][0]["param_groups"][0]["params"].pop())
    outcome = snnprec("fit", "--resume", str(path), *QUICK, "trainer.max_epochs=2", "run_dir=new")
    assert outcome.status == 2
    assert f"{path} does not fit this run, or is damaged: ValueError: " in outcome.complaint
    assert [file.name for file in here.iterdir()] == ["it.ckpt"]


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty.ckpt").touch()
    with pytest.raises(UserError, match=r"empty\.ckpt is not a checkpoint: the file is empty$"):
        read_checkpoint(tmp_path / "empty.ckpt")


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_truncated_file(tmp_path: Path, trained: Path, share: float) -> None:
    whole = (trained / "checkpoints" / "last.ckpt").read_bytes()
    (tmp_path / "cut.ckpt").write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(UserError, match=r"cut\.ckpt is truncated or damaged; use another checkpoint of the run$"):
        read_checkpoint(tmp_path / "cut.ckpt")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        read_checkpoint(tmp_path)
