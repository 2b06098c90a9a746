"""Tables of the README from the recorded benchmarks: `snnprec bench tables README.md` writes them in place."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

from lightning_snnprec.bench.record import RECORDS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `snnprec bench tables`."""
    parser.add_argument("file", type=Path, help="Markdown file with <!-- table NAME --> ... <!-- end --> marks")


def run(arguments: argparse.Namespace) -> int:
    """Writes every marked table of a file anew."""
    text = arguments.file.read_text()
    arguments.file.write_text(filled(text))
    return 0


def filled(text: str) -> str:
    """The text with each marked table replaced by that of its record.

    Raises:
        FileNotFoundError: a mark names a record that does not exist.
    """
    return re.sub(r"(<!-- table (\w+) -->\n).*?(<!-- end -->)", _table, text, flags=re.DOTALL)


def _table(match: re.Match[str]) -> str:
    record = json.loads((RECORDS / f"{match[2]}.json").read_text())
    return match[1] + "\n".join([*_RENDER[record["benchmark"]](record), "", _origin(record)]) + "\n" + match[3]


def _origin(record: dict[str, Any]) -> str:
    versions = record["versions"]
    return (
        f"`{record['command']}` on {record['device']}, {record['date']}, commit {record['commit']}, "
        f"torch {versions['torch']}, lightning {versions['lightning']}."
    )


def _digits(record: dict[str, Any]) -> list[str]:
    lines = [
        "| precision | validation accuracy, mean of seeds | per seed | firing rate |",
        "|---|---|---|---|",
    ]
    for mode, found in record["results"].items():
        seeds = ", ".join(f"{value:.2f}" for value in found["per_seed_percent"])
        lines.append(f"| {mode} | {found['accuracy_percent']:.2f} % | {seeds} | {found['firing_rate']:.3f} |")
    return lines


def _overhead(record: dict[str, Any]) -> list[str]:
    found = record["results"]
    return [
        "| | median ratio of step times |",
        "|---|---|",
        f"| SNNPrecision / MixedPrecision | {found['ratio']:.3f} |",
        f"| MixedPrecision / itself | {found['self_ratio']:.3f} |",
    ]


_RENDER = {"digits": _digits, "overhead": _overhead}
