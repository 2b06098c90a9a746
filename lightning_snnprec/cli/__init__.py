"""`snnprec`: fit, validate, test, predict, plan, doctor and bench from the command line.

Nothing heavy is imported before a command needs it, so that help is quick.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from lightning_snnprec.cli.terminal import complain, say
from lightning_snnprec.cli.verbs import VERBS, overview, unknown_verb

USAGE_STATUS = 2
INTERRUPTED_STATUS = 130

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command.

    Args:
        arguments: those after the program's name; None takes the process's own.

    Returns:
        Exit status: 0; 1 after training that diverged; 2 for what the user can put right, with a message and no
        traceback; 130 after Ctrl-C, 143 after SIGTERM in training.

    Raises:
        Exception: a fault of the program itself keeps its traceback.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    if not given or given[0] in ("-h", "--help", "help"):
        say(overview())
        return 0
    if given[0] == "--version":
        say(f"snnprec {_version()}")
        return 0
    verb = VERBS.get(given[0])
    if verb is None:
        complain(unknown_verb(given[0]))
        return USAGE_STATUS
    asks_help = [word in ("-h", "--help") for word in given[1:]]
    if any(asks_help if verb.takes_overrides else asks_help[:1]):
        say(verb.help())
        return 0
    return _run(verb.module, given)


def _version() -> str:
    from importlib.metadata import version

    return version("lightning-snnprec")


def _run(module: str, given: list[str]) -> int:
    try:
        return int(importlib.import_module(module).run(given))
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED_STATUS
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BrokenPipeError:
        # The reader of our output has gone, as in `snnprec plan | head`; Python's own flush at exit would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        from lightning_snnprec.cli.failures import explain

        message = explain(error)
        if message is None:
            raise
        complain(message)
        return USAGE_STATUS
