"""From what was typed to Hydra's arguments."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from lightning_snnprec.cli.arguments import NEWEST, Request, parse, quoted
from lightning_snnprec.config.errors import UserError


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fit", Request("fit")),
        ("fit precision=fp32 --multirun seed=1,2", Request("fit", ("--multirun",), ("precision=fp32", "seed=1,2"))),
        ("fit a=1 --cfg job b=2", Request("fit", ("--cfg", "job"), ("a=1", "b=2"))),
        ("fit --cfg=job -cn mine", Request("fit", ("--cfg=job", "-cn", "mine"))),
        ("fit --info defaults seed=1", Request("fit", ("--info", "defaults"), ("seed=1",))),
        ("fit ~trainer.logger +model.net.tau=3", Request("fit", (), ("~trainer.logger", "+model.net.tau=3"))),
        ("fit --resume", Request("fit", place=NEWEST)),
        ("fit --resume seed=1", Request("fit", (), ("seed=1",), NEWEST)),
        ("fit --resume --cfg job", Request("fit", ("--cfg", "job"), (), NEWEST)),
        ("fit --resume runs/a seed=1", Request("fit", (), ("seed=1",), "runs/a")),
        ("fit --resume=runs/a", Request("fit", place="runs/a")),
        ("fit --resume runs/a/epoch=3.ckpt", Request("fit", place="runs/a/epoch=3.ckpt")),
        ("fit resume=last", Request("fit", place=NEWEST)),
        ("fit \"resume='a b'\"", Request("fit", place="a b")),
        ("fit resume=null", Request("fit", (), ("resume=null",))),
        ("validate runs/a precision=fp32", Request("validate", (), ("precision=fp32",), "runs/a")),
        ("test seed=1 runs/a", Request("test", (), ("seed=1",), "runs/a")),
        ("test runs/a/epoch=3.ckpt", Request("test", place="runs/a/epoch=3.ckpt")),
        ("predict checkpoint=a.ckpt output=b.npz", Request("predict", (), ("output=b.npz",), "a.ckpt")),
        ("predict --checkpoint a.ckpt", Request("predict", place="a.ckpt")),
        ("plan device=h200", Request("plan", (), ("device=h200",))),
    ],
)
def test_a_line_is_taken_apart(line: str, expected: Request) -> None:
    assert parse(shlex.split(line)) == expected


def test_a_file_with_an_equals_sign_in_its_name_is_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "epoch=3.ckpt").touch()
    assert parse(["test", "epoch=3.ckpt"]).place == "epoch=3.ckpt"


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("fit fp32", "does not take the word 'fp32'; did you mean precision=fp32?"),
        ("fit hello", "does not take the word 'hello': an override looks like trainer.max_epochs=3"),
        ("fit --multi", "no flag '--multi'; did you mean '--multirun'?"),
        ("fit --zzz", "no flag '--zzz'; see snnprec fit --help"),
        ("fit --config-name", "--config-name needs a value"),
        ("fit --resume a --resume b", "takes one checkpoint, got 'a' and 'b'"),
        ("fit --resume a --multirun", "--multirun and --resume exclude each other"),
        ("fit --resume=", "an empty path"),
        ("fit checkpoint=a", "is for snnprec validate and snnprec test and snnprec predict, not for snnprec fit"),
        ("test --resume a", "--resume is for snnprec fit, not for snnprec test; write the checkpoint itself"),
        ("test --checkpoint", "--checkpoint needs a path"),
        ("test a b", "takes one checkpoint, got 'a' and 'b'"),
        ("test a --multirun", "--multirun is for snnprec fit; run snnprec test once for each value"),
        ("plan resume=a", "resume=a is for snnprec fit, not for snnprec plan"),
        ("plan h200", "snnprec plan does not take the word 'h200'"),
    ],
)
def test_what_makes_no_sense_is_told(line: str, told: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(shlex.split(line))
    assert told in str(caught.value)


@pytest.mark.parametrize("path", ["/a/b.ckpt", "/with space/it's/e=3,x.ckpt", "/ends\\", "/${x}[1]{2}"])
def test_a_quoted_path_is_read_back_by_hydra_as_it_was(path: str) -> None:
    (override,) = OverridesParser.create().parse_overrides([f"resume={quoted(Path(path))}"])
    assert override.value() == path


@pytest.mark.parametrize(
    "line", ["fit seed=1 --config-dir x", "fit --resume seed=1", "test a.ckpt seed=1", "plan device=h200"]
)
def test_a_request_can_be_repeated_by_another_process(line: str) -> None:
    request = parse(line.split())
    place = Path("/runs/a/last.ckpt") if request.place else None
    again = parse(request.command_line(place))
    assert (again.verb, again.flags, again.overrides) == (request.verb, request.flags, request.overrides)
    assert again.place == (str(place) if place else None)
