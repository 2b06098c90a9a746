"""Which recipe a request means: one that is composed anew, or the one that a run has stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lightning_snnprec.cli.arguments import NEWEST, Request, quoted
from lightning_snnprec.config.compose import compose_recipe, store_for_composition
from lightning_snnprec.config.errors import UserError
from lightning_snnprec.config.location import MAIN_RECIPE
from lightning_snnprec.config.stored import FoundRun, find_run, newest_run


@dataclass(frozen=True)
class Source:
    """What Hydra is given for a request.

    Args:
        config_name: the main recipe.
        arguments: flags and overrides.
        found: the checkpoint that was asked for, if any.
    """

    config_name: str
    arguments: list[str]
    found: FoundRun | None


def new_run(request: Request) -> Source:
    """The recipe that the request names, composed anew; Hydra makes the run's folder."""
    return Source(MAIN_RECIPE, [*request.flags, *request.overrides], None)


def resumed_run(request: Request) -> Source:
    """A run that goes on in its own folder, from its own recipe.

    A checkpoint without a stored recipe beside it goes on in a new folder, from the recipe that the request names.

    Raises:
        UserError: there is nothing to resume, or the request names a main recipe where the run has its own.
    """
    found = _found(request)
    return _source(request, found, "resume", folder=found.folder)


def evaluated_run(request: Request) -> Source:
    """The recipe of the checkpoint that a request names; Hydra makes no folder.

    Raises:
        UserError: there is no such checkpoint, or the request names a main recipe where the run has its own.
    """
    if request.place is None:
        raise UserError(
            f"snnprec {request.verb} needs a checkpoint: snnprec {request.verb} PATH, where PATH is a checkpoint file "
            "or a run's folder"
        )
    found = _found(request)
    return _source(request, found, "checkpoint", folder=None)


def without_folder(request: Request) -> Source:
    """The recipe that the request names, composed anew; Hydra makes no folder."""
    return Source(MAIN_RECIPE, [*request.flags, *_NO_FOLDER, *request.overrides], None)


_NO_FOLDER = ("hydra.run.dir=.", "hydra.output_subdir=null")


def _found(request: Request) -> FoundRun:
    if request.place == NEWEST:
        return newest_run(_runs_dir(request.overrides))
    assert request.place is not None
    return find_run(Path(request.place))


def _runs_dir(overrides: Sequence[str]) -> Path:
    return Path(compose_recipe([override for override in overrides if override.startswith("runs_dir=")]).runs_dir)


def _source(request: Request, found: FoundRun, key: str, *, folder: Path | None) -> Source:
    where = _NO_FOLDER if key == "checkpoint" else ()
    arguments = [*request.flags, *where, *request.overrides, f"{key}={quoted(found.checkpoint)}"]
    if found.recipe is None:
        return Source(MAIN_RECIPE, arguments, found)
    if request.names_main_recipe:
        raise UserError(f"--config-name and --config-path choose a recipe, but the run in {found.folder} has its own")
    return Source(store_for_composition(found.recipe, request.overrides, folder), arguments, found)
