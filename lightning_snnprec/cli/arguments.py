"""From what was typed to Hydra's arguments: our own flags become overrides."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lightning_snnprec.config.errors import UserError, near_names
from lightning_snnprec.config.location import group_options, recipe_groups

NEWEST = "last"
_WITH_VALUE = frozenset(
    {"-c", "--cfg", "-p", "--package", "-cp", "--config-path", "-cn", "--config-name", "-cd", "--config-dir"}
    | {"--experimental-rerun"}
)
_MULTIRUN = frozenset({"-m", "--multirun"})
_FLAGS = (
    _WITH_VALUE
    | _MULTIRUN
    | {"--resolve", "-r", "--run", "-i", "--info", "-sc", "--shell-completion", "--hydra-help", "--version"}
)
_CONFIG_NAME = ("-cn", "--config-name", "-cp", "--config-path")
_FOLDERS = ("runs_dir", "run_dir", "hydra.run.dir", "hydra.sweep.dir")
_PLACES = {"fit": "resume", "validate": "checkpoint", "test": "checkpoint", "predict": "checkpoint"}


@dataclass(frozen=True)
class Request:
    """A command line, taken apart.

    Args:
        verb: name of the command.
        flags: Hydra's flags with their values.
        overrides: Hydra's overrides, without `resume` and `checkpoint`.
        place: checkpoint or run folder to resume from or to evaluate; `NEWEST` for the newest run; None if not given.
    """

    verb: str
    flags: tuple[str, ...] = ()
    overrides: tuple[str, ...] = ()
    place: str | None = None

    @property
    def names_main_recipe(self) -> bool:
        """Whether a flag chooses the main recipe."""
        return any(flag.partition("=")[0] in _CONFIG_NAME for flag in self.flags)

    @property
    def is_multirun(self) -> bool:
        """Whether several runs are asked for."""
        return any(flag in _MULTIRUN for flag in self.flags) or "hydra.mode=MULTIRUN" in self.overrides

    def command_line(self, place: Path | None) -> list[str]:
        """The arguments that repeat this request in another process, with the place spelt out."""
        where = [] if place is None else ["--resume", str(place)] if self.verb == "fit" else [str(place)]
        return [self.verb, *where, *self.flags, *self.overrides]


def parse(arguments: Sequence[str]) -> Request:
    """Takes a command line apart.

    Args:
        arguments: the command's name and what follows.

    Raises:
        UserError: a word that is neither a flag, an override nor a checkpoint; a flag of another command; a flag
            without its value.
    """
    verb, *rest = arguments
    request = Request(verb)
    while rest:
        request, rest = _take(request, rest)
    if request.is_multirun and verb != "fit":
        raise UserError(f"--multirun is for snnprec fit; run snnprec {verb} once for each value")
    if request.is_multirun and request.place is not None:
        raise UserError("--multirun and --resume exclude each other; resume one run at a time")
    return request


def quoted(path: Path) -> str:
    """A path as a quoted string in Hydra's grammar."""
    # Backslashes are themselves, except before a quote, the closing one included.
    return "'" + re.sub(r"(\\*)('|$)", lambda run: run[1] * 2 + ("\\'" if run[2] else ""), str(path)) + "'"


def _take(request: Request, rest: list[str]) -> tuple[Request, list[str]]:
    word, *after = rest
    name, equals, value = word.partition("=")
    if name in ("--resume", "--checkpoint"):
        _check_place(request, name.removeprefix("--"), word)
        if equals:
            return _placed(request, value), after
        if after and _is_place(after[0]):
            return _placed(request, after[0]), after[1:]
        if name == "--checkpoint":
            raise UserError("--checkpoint needs a path: --checkpoint PATH")
        return _placed(request, NEWEST), after
    if word == "--contract" and request.verb == "plan":
        return replace(request, overrides=(*request.overrides, "contract=true")), after
    if word in _WITH_VALUE:
        if not after:
            raise UserError(f"{word} needs a value")
        return replace(request, flags=(*request.flags, word, after[0])), after[1:]
    if word in ("-i", "--info") and after and after[0].isidentifier():
        return replace(request, flags=(*request.flags, word, after[0])), after[1:]
    if word.startswith("-"):
        if name not in _FLAGS:
            hint = near_names(name, [*_FLAGS, "--resume"], at_most=1)
            raise UserError(
                f"snnprec {request.verb} has no flag {name!r}; {hint or f'see snnprec {request.verb} --help'}"
            )
        return replace(request, flags=(*request.flags, word)), after
    return _take_word(request, word, name, value), after


def _take_word(request: Request, word: str, name: str, value: str) -> Request:
    if name in ("resume", "checkpoint") and value and value != "null":
        _check_place(request, name, word)
        return _placed(request, value.strip("'\""))
    if _PLACES.get(request.verb) == "checkpoint" and _is_place(word):
        return _placed(request, word)
    if "=" not in word and not word.startswith("~"):
        raise UserError(_stray(request.verb, word))
    if name.lstrip("+") in _FOLDERS and value.strip("'\" ") in ("", "null"):
        raise UserError(f"{word!r} names no folder: write {name}=PATH, or leave it out for the recipe's own")
    return replace(request, overrides=(*request.overrides, word))


def _is_place(word: str) -> bool:
    if word.startswith(("-", "~", "+")):
        return False
    if "=" not in word or Path(word).expanduser().exists():
        return True
    # A checkpoint's own name may hold "=", as in runs/x/epoch=3.ckpt; an override's key holds no slash.
    return word.endswith(".ckpt") and "/" in word.partition("=")[0]


def _placed(request: Request, place: str) -> Request:
    if request.place is not None:
        raise UserError(f"snnprec {request.verb} takes one checkpoint, got {request.place!r} and {place!r}")
    if not place:
        raise UserError(f"snnprec {request.verb} was given an empty path for its checkpoint")
    return replace(request, place=place)


def _check_place(request: Request, name: str, word: str) -> None:
    allowed = _PLACES.get(request.verb)
    if allowed == name:
        return
    verbs = " and ".join(f"snnprec {verb}" for verb, key in _PLACES.items() if key == name)
    instead = {"resume": "; did you mean --resume PATH?", "checkpoint": "; write the checkpoint itself"}.get(
        allowed or "", ""
    )
    raise UserError(f"{word} is for {verbs}, not for snnprec {request.verb}{instead}")


def _stray(verb: str, word: str) -> str:
    for group in recipe_groups():
        if word in group_options(group):
            return f"snnprec {verb} does not take the word {word!r}; did you mean {group}={word}?"
    hint = near_names(word, [option for group in recipe_groups() for option in group_options(group)], at_most=1)
    return f"snnprec {verb} does not take the word {word!r}: an override looks like trainer.max_epochs=3" + (
        f"; {hint}" if hint else ""
    )
