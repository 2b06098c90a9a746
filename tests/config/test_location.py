"""Where recipes are found; a wheel and an editable install are tried in tests/test_packaging.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from lightning_snnprec.config import location
from lightning_snnprec.config.errors import UserError
from lightning_snnprec.config.location import group_options, recipe_groups, recipes_dir

REPOSITORY = Path(__file__).resolve().parents[2]


def test_a_source_tree_is_read_where_it_lies() -> None:
    assert recipes_dir() == REPOSITORY / "recipes"


def test_package_data_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "lightning_snnprec"
    for folder in (package / "recipes", package.parent / "recipes"):
        folder.mkdir(parents=True)
        (folder / "fit.yaml").touch()
    monkeypatch.setattr(location, "_PACKAGE", package)
    assert recipes_dir() == package / "recipes"


def test_a_damaged_installation_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(location, "_PACKAGE", tmp_path / "lightning_snnprec")
    with pytest.raises(UserError, match=r"recipes .* are missing.*reinstall"):
        recipes_dir()


def test_groups_and_options() -> None:
    assert recipe_groups() == ("callbacks", "data", "experiment", "model", "precision", "trainer")
    assert group_options("precision") == (
        "bf16", "fp16", "fp32", "fp8", "fp8_block", "fp8_current", "fp8_delayed", "fp8_emulated", "fp8_native",
        "mxfp8", "nvfp4",
    )  # fmt: skip
