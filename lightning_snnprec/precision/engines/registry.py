"""Where each FP8 engine is defined; an engine is imported only when a run asks for it."""

from __future__ import annotations

import importlib

from lightning_snnprec.precision.engines.protocol import Engine

ENGINES: dict[str, str] = {"emulated": "lightning_snnprec.precision.engines.emulated:EmulatedEngine"}
"""`fp8_engine` -> "module:class" of the engines that this version has."""


def engine_class(name: str) -> type[Engine]:
    """The class of an engine in `ENGINES`.

    Raises:
        KeyError: this version has no such engine; `refusals` says so earlier, with all other reasons.
    """
    module, _, attribute = ENGINES[name].partition(":")
    found: type[Engine] = getattr(importlib.import_module(module), attribute)
    return found
