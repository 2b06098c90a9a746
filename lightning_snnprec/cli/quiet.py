"""Warnings of other packages that tell the user of `snnprec` nothing to act on, each by name."""

from __future__ import annotations

import warnings

_IGNORED: tuple[tuple[str, type[Warning], str], ...] = (
    # Lightning 2.6.6 under torch 2.13: its own use of a deprecated name.
    (r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning, r"lightning\.pytorch\.utilities\._pytree"),
    # The summary counts parameters at 32 bits, which is what they have here in every mode.
    (
        r"Precision .* is not supported by the model summary",
        UserWarning,
        r"lightning\.pytorch\.utilities\.model_summary",
    ),
    # A resumed run goes on in its own folder; a checkpoint on its own may have come from another one.
    (r"Checkpoint directory .* exists and is not empty", UserWarning, r"lightning\.pytorch\.callbacks"),
    (r"The dirpath has changed from", UserWarning, r"lightning\.pytorch\.callbacks"),
)


def quieten_known_warnings() -> None:
    """Adds filters for the warnings listed here, after those that exist, so that the user's own come first."""
    for message, category, module in _IGNORED:
        warnings.filterwarnings("ignore", message=message, category=category, module=module, append=True)
