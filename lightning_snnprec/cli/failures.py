"""Which failures are the user's to put right, and in which words they are told."""

from __future__ import annotations

import dis
import sys
from types import TracebackType

from lightning_snnprec.config.errors import UserError

_PACKAGE = "lightning_snnprec."


def explain(error: BaseException) -> str | None:
    """The message for a failure that the user can put right; None for a fault of the program.

    The user's are: `UserError`; Lightning's `MisconfigurationException` (such as a GPU asked for where there is none);
    and a `ValueError` or `RuntimeError` that code of this package raises by a `raise` statement of its own, since that
    is how it refuses bad data, labels, shapes and precisions, with a message that names the remedy. What torch raises
    inside of it, or the interpreter (such as a failed unpacking), is a fault of the program.
    """
    if isinstance(error, UserError):
        return str(error)
    if is_misconfiguration(error):
        return " ".join(str(error).split())
    if isinstance(error, ValueError | RuntimeError) and _is_own_refusal(error.__traceback__):
        return str(error)
    return None


def is_misconfiguration(error: BaseException) -> bool:
    """Whether it is Lightning's `MisconfigurationException`; imports nothing to find out."""
    lightning = sys.modules.get("lightning.fabric.utilities.exceptions")
    return lightning is not None and isinstance(error, lightning.MisconfigurationException)


def _is_own_refusal(trace: TracebackType | None) -> bool:
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    frame = trace.tb_frame
    instruction = dis.opname[frame.f_code.co_code[trace.tb_lasti]]
    return frame.f_globals.get("__name__", "").startswith(_PACKAGE) and instruction == "RAISE_VARARGS"
