"""A run's own recipe: `config.yaml` in the run's folder, and the checkpoints below it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]

from lightning_snnprec.config.errors import UserError
from lightning_snnprec.config.schema import PARTS, REQUESTS

RECIPE_FILE = "config.yaml"
CHECKPOINT_FOLDER = "checkpoints"
LAST = "last.ckpt"
_HEADER = "# The recipe of this run. To continue it: snnprec fit --resume FOLDER, with the folder of this file.\n"
_NOT_KEPT = ("run_dir", "allow_any_target", *REQUESTS)


@dataclass(frozen=True)
class FoundRun:
    """A checkpoint, and the recipe stored with it.

    Args:
        checkpoint: the checkpoint file.
        folder: the run's folder; None when no stored recipe lies above the checkpoint.
        recipe: the stored recipe as plain values, without `run_dir`; None as above.
    """

    checkpoint: Path
    folder: Path | None
    recipe: Mapping[str, Any] | None


def save_recipe(recipe: DictConfig, folder: Path) -> Path:
    """Stores a run's recipe in its folder, as plain YAML with interpolations kept.

    What belongs to one call only is left out: the folder itself (a folder may be moved), `resume`, `checkpoint` and
    the like, and `allow_any_target`, a permission that a stored recipe must not carry from one person to another. The
    file is written aside and renamed, so it is whole or not there.

    Returns:
        The file.
    """
    kept = recipe.copy()
    with open_dict(kept):
        for key in _NOT_KEPT:
            kept.pop(key, None)
    folder.mkdir(parents=True, exist_ok=True)
    path, aside = folder / RECIPE_FILE, folder / f".{RECIPE_FILE}.{os.getpid()}"
    try:
        aside.write_text(_HEADER + OmegaConf.to_yaml(kept), encoding="utf-8")
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
    return path


def find_run(place: Path) -> FoundRun:
    """The checkpoint at a place, and the recipe stored with it.

    Args:
        place: a checkpoint file, a run's folder (its last checkpoint is meant) or a folder of checkpoints.

    Raises:
        UserError: nothing there, or a stored recipe that cannot be read.
    """
    place = place.expanduser().absolute()
    checkpoint = _checkpoint_at(place)
    for folder in (checkpoint.parent, checkpoint.parent.parent):
        if (folder / RECIPE_FILE).is_file():
            return FoundRun(checkpoint, folder, load_recipe(folder / RECIPE_FILE))
    return FoundRun(checkpoint, None, None)


def newest_run(runs_dir: Path) -> FoundRun:
    """The newest run below a folder that has a last checkpoint.

    Raises:
        UserError: there is none.
    """
    found = sorted(runs_dir.glob(f"**/{CHECKPOINT_FOLDER}/{LAST}"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise UserError(
            f"there is no run to continue: no {CHECKPOINT_FOLDER}/{LAST} below {runs_dir.absolute()}; start one with "
            "snnprec fit, name a checkpoint with --resume PATH, or name another folder with runs_dir=PATH"
        )
    return find_run(found[-1])


def load_recipe(path: Path) -> dict[str, Any]:
    """A stored recipe as plain values, interpolations unresolved.

    Raises:
        UserError: not YAML, or not a recipe.
    """
    try:
        loaded = OmegaConf.load(path)
    except (OSError, UnicodeDecodeError, YAMLError, OmegaConfBaseException) as error:
        raise UserError(f"the stored recipe {path} cannot be read: {error}") from error
    recipe = OmegaConf.to_container(loaded, resolve=False)
    missing = [part for part in PARTS if not isinstance(recipe, dict) or part not in recipe]
    if missing:
        raise UserError(f"{path} is not the stored recipe of a run: it has no {', '.join(missing)}")
    kept = cast(dict[str, Any], recipe)
    return {key: value for key, value in kept.items() if key not in _NOT_KEPT}


def _checkpoint_at(place: Path) -> Path:
    if place.is_file():
        return place
    if not place.exists():
        raise UserError(f"there is no checkpoint at {place}: no such file or folder")
    for folder in (place / CHECKPOINT_FOLDER, place):
        if (folder / LAST).is_file():
            return folder / LAST
    for folder in (place / CHECKPOINT_FOLDER, place):
        found = sorted(folder.glob("*.ckpt"), key=lambda path: path.stat().st_mtime)
        if found:
            return found[-1]
    raise UserError(f"the folder {place} holds no checkpoint: no *.ckpt in it or in its {CHECKPOINT_FOLDER} folder")
