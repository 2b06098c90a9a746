"""Name patterns of `include` and `exclude`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

_COMPILED = "_orig_mod."


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern matches a module's name or that of a module above it.

    Names are those of `named_modules()`; the part that `torch.compile` puts in (`_orig_mod.`) may be left out.
    """
    return any(fnmatchcase(path, pattern) for path in _paths(name) for pattern in patterns)


def check_patterns(field: str, patterns: Sequence[str], names: Iterable[str]) -> None:
    """Checks that every pattern matches a module.

    Raises:
        ValueError: one matches nothing; near names are told.
    """
    known = [name for name in names if name]
    faults = []
    for pattern in patterns:
        if not any(matches(name, [pattern]) for name in known):
            near = _near(pattern, known)
            hint = f"near names are {', '.join(map(repr, near))}" if near else f"the names are {', '.join(known[:12])}"
            faults.append(f"{field} pattern {pattern!r} matches no module; {hint}")
    if faults:
        raise ValueError("\n".join(faults))


def _paths(name: str) -> list[str]:
    parts = name.split(".")
    paths = [".".join(parts[:length]) for length in range(1, len(parts) + 1)]
    return paths + [path.replace(_COMPILED, "") for path in paths if _COMPILED in path]


def _near(pattern: str, known: list[str]) -> list[str]:
    word = pattern.strip("*.?")
    by_end = {name.rpartition(".")[2]: name for name in reversed(known)}
    ends = [by_end[end] for end in difflib.get_close_matches(word, by_end, n=3, cutoff=0.5)]
    return list(dict.fromkeys(ends + difflib.get_close_matches(word, known, n=3, cutoff=0.5)))[:3]
