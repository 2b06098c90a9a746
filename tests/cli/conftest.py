"""`snnprec` in this process, and one run that several tests look at."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from lightning_snnprec.cli import main

QUICK = (
    "trainer.enable_progress_bar=false",
    "trainer.enable_model_summary=false",
    "trainer.accelerator=cpu",
    "trainer.limit_train_batches=2",
    "trainer.limit_val_batches=2",
    "trainer.max_epochs=1",
)


@dataclass(frozen=True)
class Outcome:
    """What one command left: exit status, standard output, standard error without Lightning's own lines."""

    status: int
    out: str
    err: str

    def row(self, name: str) -> str:
        """The value of a printed row."""
        return next(line for line in self.out.splitlines() if line.startswith(f"{name} ")).removeprefix(name).strip()

    @property
    def complaint(self) -> str:
        """The error message, its lines joined."""
        text = self.err[self.err.index("snnprec: ") :] if "snnprec: " in self.err else ""
        return " ".join(text.split())


class Snnprec(Protocol):
    def __call__(self, *arguments: str) -> Outcome: ...


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def snnprec(here: Path, capfd: pytest.CaptureFixture[str]) -> Snnprec:
    """Runs a command in `here`."""

    def run(*arguments: str) -> Outcome:
        capfd.readouterr()
        status = main(arguments)
        return Outcome(status, *capfd.readouterr())

    return run


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run of one epoch of two steps. Tests read it, and write nothing into it."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    assert main(["fit", *QUICK, f"run_dir={folder}"]) == 0
    return folder
