"""Text for the terminal, from the first process of a run only."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def is_first_process() -> bool:
    """Whether this process speaks for the run: false in the further processes of DDP."""
    return all(os.environ.get(name, "") in ("", "0") for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID"))


def say(text: str = "") -> None:
    """Writes a line to standard output."""
    if is_first_process():
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def complain(text: str) -> None:
    """Writes an error to standard error, each of its lines behind the program's name or indented under it."""
    first, *rest = text.splitlines() or [""]
    sys.stderr.write("\n".join([f"snnprec: {first}", *(f"         {line}" for line in rest)]) + "\n")
    sys.stderr.flush()


def show_rows(rows: list[tuple[str, str]]) -> None:
    """Writes (what, value) pairs as two columns; a value may have several lines."""
    width = max((len(what) for what, _ in rows), default=0)
    for what, value in rows:
        first, *rest = value.splitlines() or [""]
        say(f"{what:<{width}}   {first}".rstrip())
        for line in rest:
            say(" " * (width + 3) + line)


def show_table(table: Table) -> None:
    """Writes a table as wide as the terminal; wide enough for its content where there is no terminal."""
    from rich.console import Console

    if is_first_process():
        console = Console(highlight=False)
        if not console.is_terminal:
            console.width = max(console.width, console.measure(table).maximum)
        console.print(table)
