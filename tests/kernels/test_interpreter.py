"""Runs `tests/kernels/interpreted` with Triton's interpreter.

It is chosen when Triton is imported, and by the time that pytest collects tests, Lightning has imported it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


def test_the_kernels_in_tritons_interpreter(seed: int) -> None:
    pytest.importorskip("triton")
    tests = Path(__file__).parent / "interpreted"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--seed", str(seed), str(tests)]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    root = Path(__file__).parents[2]
    done = subprocess.run(command, env=environment, cwd=root, capture_output=True, text=True, check=False)
    print(done.stdout[-5000:], done.stderr[-2000:])
    assert done.returncode == 0
