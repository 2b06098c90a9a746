"""Fixtures of every test: a fresh printed seed, deterministic algorithms (empty memory reads as NaN), one thread."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest
import torch

from lightning_snnprec.precision.engines import ENGINES

torch.set_num_threads(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=None, help="seed of every test (default: a fresh one each run)")


def pytest_configure(config: pytest.Config) -> None:
    chosen = config.getoption("--seed")
    config.stash[_SEED] = random.SystemRandom().randrange(2**31) if chosen is None else chosen


_SEED = pytest.StashKey[int]()


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.stash[_SEED]} (repeat with --seed {config.stash[_SEED]})"


@pytest.fixture(autouse=True)
def seed(request: pytest.FixtureRequest) -> Iterator[int]:
    """Seeds torch and Python for the test; the value is printed in the run's header."""
    value: int = request.config.stash[_SEED]
    random.seed(value)
    torch.manual_seed(value)
    torch.use_deterministic_algorithms(True)
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    yield value
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def stub_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts `StubEngine` in the place of the emulated engine."""
    monkeypatch.setitem(ENGINES, "emulated", "tests.stub_engine:StubEngine")
