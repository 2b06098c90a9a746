"""A benchmark's record: what ran, where, and what came out, as JSON."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightning
import torch

RECORDS = Path(__file__).parent / "records"


def make_record(benchmark: str, results: dict[str, Any]) -> dict[str, Any]:
    """Results with everything needed to repeat them: command, commit, date, device and versions."""
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "benchmark": benchmark,
        "command": _command(sys.argv[1:]),
        "commit": commit(),
        "date": datetime.datetime.now(tz=datetime.timezone.utc).strftime("%Y-%m-%d"),
        "device": gpu or f"CPU, {os.cpu_count()} cores ({platform.machine()})",
        "versions": {
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "lightning": lightning.__version__,
            "cuda": torch.version.cuda,
        },
        "results": results,
    }


def _command(arguments: list[str]) -> str:
    """The command line without the record's own file."""
    kept = [word for before, word in zip(["", *arguments], arguments, strict=False) if "--output" not in (before, word)]
    return " ".join(["snnprec", *kept])


def write_record(path: Path, record: dict[str, Any]) -> None:
    """Writes a record as JSON, complete or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".tmp")
    aside.write_text(json.dumps(record, indent=1) + "\n")
    aside.replace(path)


def commit() -> str:
    """Commit of the source tree that runs, with "+" after it when files were changed; "unknown" outside of git."""
    root = Path(__file__).parents[2]
    git = ["git", "-C", str(root)]
    try:
        head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
        changed = subprocess.run([*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")
