"""Every file under examples/ runs, as its own first lines say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


def test_no_example_is_left_out() -> None:
    files = {str(path.relative_to(EXAMPLES)) for path in EXAMPLES.rglob("*.*") if path.suffix in (".py", ".yaml")}
    assert files == {"custom_loop.py", "lightning_module.py", "recipes/my_digits.yaml"}


@pytest.mark.parametrize("mode", ["fp32", "bf16", "fp16", "fp8"])
def test_custom_loop(mode: str, tmp_path: Path) -> None:
    done = run([str(EXAMPLES / "custom_loop.py"), "--mode", mode, "--epochs", "3"], tmp_path)
    assert done.returncode == 0, done.stderr
    accuracies = [float(value) for value in re.findall(r"validation accuracy ([\d.]+)", done.stdout)]
    assert len(accuracies) == 3
    assert accuracies[-1] > 0.8
    assert f"{mode}" in done.stdout.splitlines()[-2]


def test_lightning_module_is_forty_lines_and_learns(tmp_path: Path) -> None:
    source = (EXAMPLES / "lightning_module.py").read_text()
    assert len([line for line in source.splitlines() if line.strip()]) <= 40
    done = run([str(EXAMPLES / "lightning_module.py"), "bf16"], tmp_path)
    assert done.returncode == 0, done.stderr
    found = re.search(r"validation accuracy ([\d.]+)", done.stdout)
    assert found is not None
    assert float(found[1]) > 0.9


def test_recipe_written_by_hand(tmp_path: Path) -> None:
    command = [
        "-m",
        "lightning_snnprec.cli",
        "fit",
        "--config-dir",
        str(EXAMPLES / "recipes"),
        "--config-name",
        "my_digits",
    ]
    done = run([*command, "trainer.max_epochs=1"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert "fp16" in done.stdout + done.stderr
