"""`UserError`: what was asked cannot be done, and the message says what to change."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """A fault of a recipe, an override, a file or a request, not of the program.

    The message is complete: it names what was asked, what was found and what to do. The command line prints it without
    a traceback and exits with status 2.
    """


def near_names(name: str, known: Iterable[str], *, at_most: int = 3) -> str:
    """A hint at the names that `name` may have meant, as a clause such as "did you mean 'max_epochs'?".

    A known dotted name counts as near, too, when its last part is `name`. Empty when nothing is near.
    """
    names = sorted(set(known))
    same_leaf = [other for other in names if "." in other and other.rpartition(".")[2] == name]
    close = [other for other in difflib.get_close_matches(name, names, n=at_most, cutoff=0.6) if other not in same_leaf]
    inside = {other for other in close if any(other.startswith(f"{above}.") for above in close)}
    found = [other for other in same_leaf + close if other not in inside][:at_most]
    return f"did you mean {' or '.join(repr(other) for other in found)}?" if found else ""
