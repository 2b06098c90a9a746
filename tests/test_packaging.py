"""Recipes from a wheel and from an editable install, each in an environment of its own."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGED = ("pyproject.toml", "README.md", "LICENSE", "lightning_snnprec", "recipes")
# With hatchling's two packages at hand nothing is fetched; without them pip fetches its own.
_BACKEND_IS_HERE = all(importlib.util.find_spec(name) for name in ("hatchling", "editables"))
ISOLATION = ["--no-build-isolation"] if _BACKEND_IS_HERE else []


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH" or environment}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**inherited, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def pip(*arguments: str | Path, cwd: Path) -> str:
    return run(sys.executable, "-m", "pip", *arguments, cwd=cwd, PIP_DISABLE_PIP_VERSION_CHECK="1")


def install(environment: Path, *arguments: str | Path) -> None:
    """Installs into an environment, whatever the environment of the tests holds, which is visible in it."""
    pip("--python", environment / "python", "install", "--no-deps", "--ignore-installed", *arguments, cwd=environment)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A copy of what is packaged, so that a test may edit it."""
    folder = tmp_path / "source"
    folder.mkdir()
    for name in PACKAGED:
        path = REPOSITORY / name
        if path.is_dir():
            shutil.copytree(path, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, folder / name)
    return folder


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A new environment that sees the packages of this one, but not through it an editable install."""
    folder = tmp_path / "environment"
    venv.create(folder, symlinks=True)
    paths = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
    inside = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
    Path(inside, "tested_environment.pth").write_text("\n".join(paths) + "\n")
    return folder / ("Scripts" if os.name == "nt" else "bin")


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A working directory that has nothing to do with the source."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder


def recipes_of(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.yaml"))


def test_a_wheel_carries_the_recipes(source: Path, environment: Path, elsewhere: Path) -> None:
    pip("wheel", "--no-deps", *ISOLATION, "--wheel-dir", "wheels", source, cwd=elsewhere.parent)
    (wheel,) = (elsewhere.parent / "wheels").glob("*.whl")
    carried = [name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".yaml")]
    assert sorted(carried) == [f"lightning_snnprec/recipes/{name}" for name in recipes_of(source / "recipes")]
    install(environment, "--no-index", wheel)
    shutil.rmtree(source)
    shown = run(environment / "snnprec", "plan", "precision=fp8", "device=h200", cwd=elsewhere)
    assert "fp8 (te, delayed): convert 3" in shown
    assert list(elsewhere.iterdir()) == []


def test_an_editable_install_sees_edits_of_the_recipes(source: Path, environment: Path, elsewhere: Path) -> None:
    install(environment, *ISOLATION, "--editable", source)
    recipe = source / "recipes" / "trainer" / "default.yaml"
    recipe.write_text(recipe.read_text().replace("max_epochs: 15", "max_epochs: 321"))
    (source / "recipes" / "experiment" / "mine.yaml").write_text("# @package _global_\nseed: 654\n")
    shown = run(environment / "snnprec", "fit", "--cfg", "job", "experiment=mine", cwd=elsewhere)
    assert "max_epochs: 321\n" in shown
    assert "seed: 654\n" in shown
    assert list(elsewhere.iterdir()) == []
