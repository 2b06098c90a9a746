"""Composing recipes with Hydra: from the tree of recipes, or on top of a recipe that a run has stored."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from lightning_snnprec.config.errors import UserError, near_names
from lightning_snnprec.config.location import MAIN_RECIPE, group_options, recipe_groups, recipes_dir
from lightning_snnprec.config.schema import REQUESTS

HYDRA_VERSION_BASE = "1.3"
STORED_RECIPE = "recipe_of_the_run"


def compose_recipe(
    overrides: Sequence[str] = (), *, config_name: str = MAIN_RECIPE, config_dir: Path | None = None
) -> DictConfig:
    """Composes a recipe as `snnprec` does, for use from Python.

    Args:
        overrides: in Hydra's grammar, such as "precision=fp32" and "trainer.max_epochs=3".
        config_name: the main recipe.
        config_dir: a folder of one's own recipes, which need not be complete: its groups and those of the package
            are both found.

    Raises:
        UserError: the recipe or an override is unknown or malformed.
    """
    search = [f"hydra.searchpath=[file://{recipes_dir()}]"] if config_dir is not None else []
    folder = config_dir.absolute() if config_dir is not None else recipes_dir()
    try:
        with initialize_config_dir(version_base=HYDRA_VERSION_BASE, config_dir=str(folder)):
            return compose(config_name, overrides=[*search, *overrides])
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise UserError(composition_fault(error, overrides)) from error


def store_for_composition(recipe: Mapping[str, Any], overrides: Sequence[str], run_dir: Path | None) -> str:
    """Makes a stored recipe known to Hydra as a main recipe, so that overrides work on it as on any other.

    An override that selects an option of a group, such as `precision=fp32`, replaces that part of the stored recipe.

    Args:
        recipe: plain values, as `load_recipe` returns.
        overrides: those that will be given; only read.
        run_dir: the run's folder, unless an override says otherwise.

    Returns:
        The name of the main recipe.

    Raises:
        UserError: an override is malformed, or selects an experiment, which is a whole recipe and not a part.
    """
    body: dict[str, Any] = dict.fromkeys(REQUESTS) | dict(recipe)
    defaults: list[Any] = ["_self_"]
    for group, option in _selected_options(overrides):
        if group == "experiment":
            raise UserError(
                f"experiment={option} is a whole recipe, and the run has its own; give single overrides such as "
                "precision=fp32, or start a new run"
            )
        body.pop(group, None)
        defaults.append({group: option})
    defaults.append({"override hydra/job_logging": "none"})
    settings = {"job": {"name": "snnprec"}, "output_subdir": None, "run": {"dir": "${run_dir}"}}
    folder = None if run_dir is None else str(run_dir)
    node = {"defaults": defaults, **body, "allow_any_target": False, "run_dir": folder, "hydra": settings}
    ConfigStore.instance().store(STORED_RECIPE, node)
    return STORED_RECIPE


def composition_fault(error: Exception, overrides: Sequence[str] = ()) -> str:
    """What is wrong with a recipe or an override, in one or two sentences, from Hydra's exception.

    Args:
        error: Hydra's.
        overrides: those that were given; Hydra does not always say which it means.
    """
    text = "\n".join(part for part in (str(error), str(error.__cause__ or "")) if part)
    missing = re.search(r"Could not override '([^']+)'", text)
    faults = [fault for fault in map(_option_fault, overrides) if fault]
    if faults:
        return "\n".join(faults)
    if missing and ("not in struct" in text or "No match in the defaults list" in text):
        return _unknown_override(missing.group(1))
    if isinstance(error, OverrideParseException):
        return _malformed(str(error.override), text.splitlines()[0])
    if isinstance(error, MissingConfigException):
        return _missing_option(error)
    return " ".join(line.strip() for line in text.splitlines() if line.strip())


def _option_fault(override: str) -> str:
    """A fault where an override has no key, or gives a group something else than the name of an option."""
    key, equals, value = override.partition("=")
    if equals and not key.strip("+~ "):
        return f"the override {override!r} has no key before '='; overrides look like trainer.max_epochs=3"
    group = key.lstrip("+").partition("@")[0]
    if not equals or key.startswith(("~", "-")) or group not in recipe_groups():
        return ""
    if value not in ("", "null") and not value.startswith("{") and not re.fullmatch(r"[-+\d.]+", value):
        return ""
    options = ", ".join(group_options(group))
    return f"{override}: {group} takes the name of an option, one of {options}; leave it out for the recipe's own"


def _malformed(override: str, reason: str) -> str:
    key, equals, value = override.partition("=")
    double = f'{key}="{value}"'
    is_character = "LexerNoViableAlt" in reason
    if is_character and equals and not value.startswith(("'", '"')) and _parses(double):
        remedy = f"a value with spaces, commas, brackets or letters beyond ASCII must be quoted: {shlex.quote(double)}"
    else:
        remedy = (
            "overrides look like trainer.max_epochs=3 (quote a value that has spaces, commas, brackets or letters "
            "beyond ASCII)"
        )
    return f"the override {override!r} is malformed{'' if is_character else f': {reason}'}; {remedy}"


def _parses(override: str) -> bool:
    try:
        OverridesParser.create().parse_overrides([override])
    except HydraException:
        return False
    return True


def _selected_options(overrides: Sequence[str]) -> Iterator[tuple[str, str]]:
    groups = recipe_groups()
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
    except HydraException as error:
        raise UserError(composition_fault(error)) from error
    for override in parsed:
        if override.key_or_group in groups and not override.is_delete():
            yield override.key_or_group, override.get_value_element_as_str()


def _unknown_override(key: str) -> str:
    hint = near_names(key, _keys(compose_recipe(), "") if key not in ("", MAIN_RECIPE) else ())
    add = f"to add a key that the recipe lacks, write +{key}=..."
    return f"unknown override {key!r}: the recipe has no such key; {hint + ' ' if hint else ''}({add})"


def _missing_option(error: MissingConfigException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    group, _, option = (error.missing_cfg_file or "").rpartition("/")
    known = list(error.options or ()) or (list(group_options(group)) if group in recipe_groups() else [])
    if not group or not known:
        return " ".join(lines)
    hint = near_names(option, known, at_most=1)
    return f"{group}={option}: there is no such option; {hint + ' ' if hint else ''}the options are {', '.join(known)}"


def _keys(node: Any, above: str) -> Iterator[str]:
    if isinstance(node, DictConfig):
        for name in map(str, node):
            key = f"{above}.{name}" if above else name
            yield key
            yield from _keys(node._get_node(name), key)
