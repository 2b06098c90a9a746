"""Which classes a recipe may name in `_target_`, and whether the arguments that it gives fit them."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType, NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from torch import Tensor

from lightning_snnprec.config.errors import UserError, near_names

ALLOWED_ROOTS = (
    "lightning_snnprec",
    "lightning.pytorch",
    "torch.nn",
    "torch.optim",
    "torch.utils.data",
    "torchmetrics",
)
_OWN_ROOT = "lightning_snnprec"
_HYDRA_KEYS = frozenset({"_target_", "_partial_", "_convert_", "_recursive_", "_args_"})
_PLAIN = (str, int, float, bool, NoneType)
_NEVER_PLAIN = (Tensor,)


def check_targets(recipe: Mapping[str, Any], *, allow_any: bool) -> None:
    """Refuses a recipe that names a target outside `ALLOWED_ROOTS`, or gives a target an argument that it lacks.

    A recipe is data that may come from someone else, and `_target_` calls what it names. So a target is looked up part
    by part, and the class found at the end must itself be defined below an allowed root: `torch.os.system` starts
    with an allowed word and is refused.

    Args:
        recipe: plain nested mappings and lists, interpolations resolved.
        allow_any: accept targets of any origin; their arguments are still checked.

    Raises:
        UserError: every fault of the recipe, a line each.
    """
    faults: list[str] = []
    for key, node in _target_nodes(recipe, ""):
        faults += _faults(key, node, allow_any=allow_any)
    if faults:
        raise UserError("\n".join(faults))


def _target_nodes(node: Any, key: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(node, Mapping):
        if "_target_" in node:
            yield key, node
        for name, child in node.items():
            yield from _target_nodes(child, f"{key}.{name}" if key else str(name))
    elif isinstance(node, list):
        for position, child in enumerate(node):
            yield from _target_nodes(child, f"{key}[{position}]")


def _faults(key: str, node: Mapping[str, Any], *, allow_any: bool) -> list[str]:
    path = node["_target_"]
    if not isinstance(path, str):
        return [f"{key}._target_={path!r} must be the dotted name of a class"]
    if not allow_any and not _below_allowed(path):
        return [_not_allowed(key, path)]
    try:
        target = _locate(path)
    except (ImportError, AttributeError) as error:
        return [f"{key}._target_={path!r} cannot be found: {error}"]
    if not callable(target):
        return [f"{key}._target_={path!r} is a {type(target).__name__}, not a class"]
    if not allow_any and not _is_trusted(target):
        return [_not_allowed(key, path)]
    return _argument_faults(key, path, target, node)


def _below_allowed(path: str) -> bool:
    return any(path.startswith(f"{root}.") for root in ALLOWED_ROOTS)


def _is_trusted(target: Callable[..., Any]) -> bool:
    origin = f"{getattr(target, '__module__', '')}."
    if isinstance(target, type):
        return _below_allowed(origin)
    return isinstance(target, FunctionType) and origin.startswith(f"{_OWN_ROOT}.")


def _not_allowed(key: str, path: str) -> str:
    return (
        f"{key}._target_={path!r} is not a class of {', '.join(ALLOWED_ROOTS)}; a recipe runs what it names, so if you "
        "trust this one, give allow_any_target=true"
    )


def _locate(path: str) -> Any:
    """The object of a dotted name: attribute by attribute, importing a submodule where there is no attribute."""
    first, *rest = path.split(".")
    found: Any = importlib.import_module(first)
    seen = first
    for part in rest:
        if not part or part.startswith("__"):
            raise ImportError("no such name")
        if not hasattr(found, part) and inspect.ismodule(found):
            try:
                importlib.import_module(f"{seen}.{part}")
            except ModuleNotFoundError as error:
                if error.name != f"{seen}.{part}":
                    raise
                hint = near_names(part, dir(found), at_most=1)
                raise ImportError(f"{seen} has no {part!r}" + (f"; {hint}" if hint else "")) from None
        found = getattr(found, part)
        seen = f"{seen}.{part}"
    return found


def _argument_faults(key: str, path: str, target: Callable[..., Any], node: Mapping[str, Any]) -> list[str]:
    try:
        parameters = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return []
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    known = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    hints = _type_hints(target)
    name = path.rpartition(".")[2]
    faults = []
    for argument, value in node.items():
        if argument in known:
            faults += _type_fault(f"{key}.{argument}", value, hints.get(argument, Any))
        elif argument not in _HYDRA_KEYS and not open_ended:
            hint = near_names(str(argument), known) or f"its arguments are {', '.join(known)}"
            faults.append(f"{key}.{argument}: {name} has no argument {argument!r}; {hint}")
    return faults


def _type_hints(target: Callable[..., Any]) -> dict[str, Any]:
    called = target.__init__ if isinstance(target, type) else target  # type: ignore[misc]
    try:
        return get_type_hints(inspect.unwrap(called))
    except Exception:  # noqa: BLE001 - an annotation that cannot be evaluated leaves its function unchecked
        return {}


def _type_fault(key: str, value: Any, hint: Any) -> list[str]:
    """A fault where a plain value has none of the plain types of its annotation; other annotations are not judged."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if not isinstance(value, str | int | float | bool | None) or not all(
        kind in _PLAIN + _NEVER_PLAIN for kind in kinds
    ):
        return []
    kinds = tuple(kind for kind in kinds if kind in _PLAIN)
    fits = [kind for kind in kinds if type(value) is kind or (kind is float and type(value) is int)]
    names = " or ".join("null" if kind is NoneType else kind.__name__ for kind in kinds)
    return [] if fits else [f"{key}={value!r} must be {names}, and is {type(value).__name__}"]
