"""Every test here needs a CUDA device; without one it is skipped and says so."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    missing = pytest.mark.skip(reason="needs a CUDA device")
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.gpu)
            if not torch.cuda.is_available():
                item.add_marker(missing)


# The kernels' own tests import Triton, which CUDA builds of torch bring.
collect_ignore_glob = [] if importlib.util.find_spec("triton") else ["test_neuron_*.py"]
