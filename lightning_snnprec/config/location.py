"""Where the recipes lie: inside the package in a wheel, beside it in a source tree."""

from __future__ import annotations

from pathlib import Path

from lightning_snnprec.config.errors import UserError

MAIN_RECIPE = "fit"
_PACKAGE = Path(__file__).resolve().parent.parent


def recipes_dir() -> Path:
    """The folder of the recipes, as an absolute path.

    A wheel carries them as package data. A source tree has no such folder inside the package, so there (an editable
    install included) they are read from `recipes/` beside it, and an edit is seen by the next run.

    From another Hydra application the groups are reached by putting this folder on the search path, for instance
    `hydra.searchpath=[file://<folder>]`; `snnprec doctor` prints the folder.

    Raises:
        UserError: neither place has the main recipe: the installation is damaged.
    """
    places = (_PACKAGE / "recipes", _PACKAGE.parent / "recipes")
    for place in places:
        if (place / f"{MAIN_RECIPE}.yaml").is_file():
            return place
    raise UserError(
        f"the recipes of lightning_snnprec are missing: no {MAIN_RECIPE}.yaml in {' or '.join(map(str, places))}; "
        "reinstall the package"
    )


def recipe_groups() -> tuple[str, ...]:
    """Names of the recipe groups, such as "model" and "precision"."""
    return tuple(sorted(path.name for path in recipes_dir().iterdir() if path.is_dir()))


def group_options(group: str) -> tuple[str, ...]:
    """Names of the options of one group, such as "bf16" and "fp32" of "precision"."""
    return tuple(sorted(path.stem for path in (recipes_dir() / group).glob("*.yaml")))
