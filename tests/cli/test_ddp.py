"""`snnprec fit` in two processes: Lightning starts the second with `sys.argv`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import torch

from lightning_snnprec.config.location import recipes_dir
from tests.cli.conftest import QUICK


def test_two_processes_share_one_run(tmp_path: Path) -> None:
    overrides = [word for word in QUICK if "accelerator" not in word]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(recipes_dir().parent)}
    done = subprocess.run(
        [sys.executable, "-m", "lightning_snnprec.cli", "fit", "trainer=ddp_cpu", *overrides],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "GLOBAL_RANK: 1, MEMBER: 2/2" in done.stderr
    (run,) = (tmp_path / "runs").iterdir()
    assert sorted(path.name for path in run.iterdir()) == ["checkpoints", "config.yaml", "contract.json", "logs"]
    assert [path.name for path in (run / "logs").iterdir()] == ["version_0"]
    assert torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["global_step"] == 2
    assert done.stdout.count("validation accuracy") == 1
    assert f"snnprec fit --resume runs/{run.name} trainer.max_epochs=2" in done.stdout
