"""What `import lightning_snnprec` needs and costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

_BLOCK = """
import importlib.metadata, sys
names = {names!r}
installed = importlib.metadata.distribution
def distribution(name):
    if name in names:
        raise importlib.metadata.PackageNotFoundError(name)
    return installed(name)
importlib.metadata.distribution = distribution
sys.modules.update(dict.fromkeys(names))
"""
_TIMED = """
import time
start = time.perf_counter()
import torch, lightning.pytorch
between = time.perf_counter()
import lightning_snnprec
print(between - start, time.perf_counter() - between)
"""


def run(code: str) -> str:
    command = [sys.executable, "-W", "error::ImportWarning", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_without_optional_packages_and_a_cpu_mode_runs() -> None:
    """Field report A33: no GPU, no Transformer Engine, no Triton."""
    blocked = ("triton", "transformer_engine", "hydra", "matplotlib", "spikingjelly")
    code = _BLOCK.format(names=blocked) + (
        "import torch, lightning_snnprec as s\n"
        "art = s.prepare_model_for_precision(torch.nn.Linear(4, 4), 'cpu', 'bf16')\n"
        "with art.autocast_context(): print(art.model(torch.ones(1, 4)).dtype)\n"
        "try: s.prepare_model_for_precision(torch.nn.Linear(4, 4), 'cpu', 'fp8')\n"
        "except RuntimeError as error: print(str(error).count('  - ') >= 2)\n"
    )
    assert run(code).splitlines() == ["torch.bfloat16", "True"]


def test_import_brings_in_no_optional_package() -> None:
    names = ("triton", "transformer_engine", "hydra", "matplotlib", "spikingjelly", "sklearn")
    code = (
        "import torch, lightning.pytorch, sys; before = set(sys.modules); import lightning_snnprec; "
        f"print([name for name in {names!r} if name in set(sys.modules) - before])"
    )
    assert run(code) == "[]"


def test_import_takes_at_most_half_a_second_more_than_torch_and_lightning(capsys: pytest.CaptureFixture[str]) -> None:
    theirs, added = (float(seconds) for seconds in run(_TIMED).split())
    with capsys.disabled():
        ratio = (theirs + added) / theirs
        print(f"\ntorch and lightning.pytorch {theirs:.2f} s, lightning_snnprec {added:.2f} s more, ratio {ratio:.3f}")
    assert added <= 0.5
