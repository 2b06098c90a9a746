"""Checks of arguments: each returns a sentence about what is wrong; all are raised at once."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Collection, Iterable


def int_fault(name: str, value: object, minimum: int) -> str | None:
    """Says what is wrong when `value` is not an int (a bool is none) of at least `minimum`; else None."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= minimum:
        return None
    return f"{name}={value!r}: needs an int >= {minimum}."


def bool_fault(name: str, value: object) -> str | None:
    """Says what is wrong when `value` is not True or False; else None."""
    return None if isinstance(value, bool) else f"{name}={value!r}: needs True or False."


def number_fault(
    name: str,
    value: object,
    *,
    above: float | None = None,
    least: float | None = None,
    below: float = math.inf,
) -> str | None:
    """Says what is wrong when `value` is not a finite number in the given interval; else None.

    Args:
        name: the argument's name.
        value: what was given; a bool or a string is no number.
        above: exclusive lower bound.
        least: inclusive lower bound.
        below: exclusive upper bound.
    """
    number = math.nan if isinstance(value, bool) or not isinstance(value, numbers.Real) else float(value)
    if math.isfinite(number) and _inside(number, above, least, below):
        return None
    bounds = [f"> {above:g}"] if above is not None else []
    bounds += [f">= {least:g}"] if least is not None else []
    bounds += [f"< {below:g}"] if math.isfinite(below) else []
    return f"{name}={value!r}: needs a finite number {' and '.join(bounds)}".rstrip() + "."


def _inside(value: float, above: float | None, least: float | None, below: float) -> bool:
    return (above is None or value > above) and (least is None or value >= least) and value < below


def choice_fault(name: str, value: object, choices: Collection[object]) -> str | None:
    """Says what is allowed, and the nearest spelling, when `value` is not one of `choices`; else None."""
    if any(value is choice or (type(value) is type(choice) and value == choice) for choice in choices):
        return None
    words = [choice for choice in choices if isinstance(choice, str)]
    near = difflib.get_close_matches(str(value), words, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    return f"{name}={value!r}: must be one of {', '.join(map(repr, choices))}.{hint}"


def raise_faults(owner: str, faults: Iterable[str | None]) -> None:
    """Raises one `ValueError` with a line per fault, named after `owner`; does nothing when there is none."""
    found = [fault for fault in faults if fault is not None]
    if len(found) == 1:
        raise ValueError(f"{owner}: {found[0]}")
    if found:
        raise ValueError("\n".join([f"{owner}: {len(found)} arguments are wrong:", *(f"  - {f}" for f in found)]))
