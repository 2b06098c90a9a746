"""What a recipe consists of: its keys, and what each command uses of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from lightning_snnprec.config.errors import UserError, near_names
from lightning_snnprec.config.targets import check_targets
from lightning_snnprec.precision import PrecisionConfig

PARTS = ("model", "data", "precision", "trainer", "callbacks")
SETTINGS = ("seed", "num_threads", "runs_dir", "run_dir", "allow_any_target")
REQUESTS = {
    "resume": ("fit",),
    "checkpoint": ("validate", "test", "predict"),
    "input": ("predict",),
    "output": ("predict",),
    "device": ("plan",),
    "contract": ("plan",),
}
_INSTEAD = {
    "resume": "use checkpoint=PATH",
    "checkpoint": "use resume=PATH to continue a run",
    "input": "set the fields of data= instead",
    "output": "set run_dir= instead",
    "device": "set trainer.accelerator= and trainer.devices= instead",
    "contract": "a fit stores contract.json in its folder",
}


def plain_recipe(recipe: DictConfig) -> dict[str, Any]:
    """The recipe as plain nested Python values, interpolations resolved.

    Raises:
        UserError: an interpolation that cannot be resolved, or a value that is missing ("???").
    """
    try:
        return cast(dict[str, Any], OmegaConf.to_container(recipe, resolve=True, throw_on_missing=True))
    except OmegaConfBaseException as error:
        raise UserError(f"the recipe cannot be resolved: {_first_lines(error)}") from error


def check_recipe(recipe: DictConfig, command: str) -> PrecisionConfig:
    """Checks a composed recipe as far as that is possible without building anything.

    Args:
        recipe: composed by Hydra.
        command: the command that will use it, such as "fit".

    Returns:
        The precision it asks for.

    Raises:
        UserError: unknown or missing keys, a request of another command, a bad precision, or a target that is
            not allowed, does not exist or lacks an argument that is given.
    """
    plain = plain_recipe(recipe)
    faults = _key_faults(plain) + _request_faults(plain, command)
    if faults:
        raise UserError("\n".join(faults))
    precision = precision_of(plain)
    check_targets({part: plain[part] for part in PARTS if part in plain}, allow_any=bool(plain.get("allow_any_target")))
    return precision


def precision_of(plain: Mapping[str, Any]) -> PrecisionConfig:
    """The `precision` part of a plain recipe as a `PrecisionConfig`.

    Raises:
        UserError: with all faults, as `PrecisionConfig` words them.
    """
    try:
        return PrecisionConfig.from_any(plain["precision"])
    except (TypeError, ValueError) as error:
        raise UserError(f"precision: {error}") from error


def _key_faults(plain: Mapping[str, Any]) -> list[str]:
    known = (*PARTS, *SETTINGS, *REQUESTS)
    faults = []
    for key in plain:
        if key not in known:
            hint = near_names(str(key), known) or f"the keys of a recipe are {', '.join(known)}"
            faults.append(f"the recipe has an unknown key {key!r}; {hint}")
    faults += [
        f"the recipe has no {part!r} part; add '- {part}: <option>' to its defaults list"
        for part in PARTS[:-1]
        if not isinstance(plain.get(part), Mapping)
    ]
    faults += [
        f"the {part!r} part of the recipe has no '_target_', so nothing says which class to build"
        for part in ("model", "data", "trainer")
        if isinstance(plain.get(part), Mapping) and "_target_" not in plain[part]
    ]
    return faults


def _request_faults(plain: Mapping[str, Any], command: str) -> list[str]:
    return [
        f"{key}={plain[key]} is for snnprec {', '.join(commands)}, not for snnprec {command}; {_INSTEAD[key]}"
        for key, commands in REQUESTS.items()
        if plain.get(key) is not None and command not in commands
    ]


def _first_lines(error: Exception) -> str:
    return " ".join(line.strip() for line in str(error).splitlines()[:2])
