"""Collected only where Triton interprets, which is decided at its import: see `tests/kernels/test_interpreter.py`."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["test_*.py"]
