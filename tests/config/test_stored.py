"""A run's own recipe and its checkpoints."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from lightning_snnprec.config.compose import compose_recipe
from lightning_snnprec.config.errors import UserError
from lightning_snnprec.config.stored import find_run, load_recipe, newest_run, save_recipe

REQUESTS = ["resume=a", "checkpoint=b", "input=c", "output=d", "device=h200", "allow_any_target=true", "run_dir=x"]


def make_run(folder: Path, *names: str, when: int = 0) -> Path:
    (folder / "checkpoints").mkdir(parents=True)
    for name in names:
        path = folder / "checkpoints" / name
        path.touch()
        os.utime(path, (when, when))
    save_recipe(compose_recipe(), folder)
    return folder


def test_the_file_is_plain_yaml_without_what_belongs_to_one_call(tmp_path: Path) -> None:
    recipe = compose_recipe([*REQUESTS, "precision=fp16"])
    path = save_recipe(recipe, tmp_path / "run")
    text = path.read_text()
    plain = yaml.safe_load(text)
    assert text.startswith("# ")
    assert set(plain) == {"num_threads", "seed", "runs_dir", "model", "data", "precision", "trainer", "callbacks"}
    assert plain["precision"]["mode"] == "fp16"
    assert plain["callbacks"]["last"]["dirpath"] == "${run_dir}/checkpoints"
    assert recipe.run_dir == "x"
    assert load_recipe(path) == plain


def test_a_failure_leaves_the_former_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_recipe(compose_recipe(), tmp_path)
    before = path.read_text()

    def full(self: Path, target: Path) -> Path:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="no space left"):
        save_recipe(compose_recipe(["seed=7"]), tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["config.yaml"]
    assert path.read_text() == before


@pytest.mark.parametrize("place", ["", "checkpoints", "checkpoints/last.ckpt"])
def test_a_run_is_found_by_its_folder_or_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    make_run(tmp_path / "run", "last.ckpt", "best.ckpt")
    monkeypatch.chdir(tmp_path)
    found = find_run(Path("run") / place)
    assert found.checkpoint == tmp_path / "run" / "checkpoints" / "last.ckpt"
    assert found.folder == tmp_path / "run"
    assert found.recipe is not None
    assert found.recipe["model"]["net"]["neuron"] == "lif"


def test_without_a_last_checkpoint_the_newest_is_taken(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", "epoch=3.ckpt", when=100)
    newer = run / "checkpoints" / "epoch=4.ckpt"
    newer.touch()
    assert find_run(run).checkpoint == newer


def test_a_checkpoint_on_its_own_has_no_recipe(tmp_path: Path) -> None:
    (tmp_path / "alone.ckpt").touch()
    found = find_run(tmp_path / "alone.ckpt")
    assert (found.folder, found.recipe) == (None, None)


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no checkpoint at .*nowhere: no such file or folder"):
        find_run(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"holds no checkpoint"):
        find_run(tmp_path)
    with pytest.raises(UserError, match=r"no run to continue: no checkpoints/last.ckpt below .*; start one"):
        newest_run(tmp_path)


def test_the_newest_run_is_that_of_the_newest_checkpoint_also_in_a_sweep(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "last.ckpt", when=200)
    make_run(tmp_path / "sweep" / "0", "last.ckpt", when=300)
    make_run(tmp_path / "z", "last.ckpt", when=100)
    make_run(tmp_path / "no_last", "best.ckpt", when=400)
    assert newest_run(tmp_path).folder == tmp_path / "sweep" / "0"


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"a: [1", "cannot be read"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"", "is not the stored recipe of a run"),
        (b"- 1\n", "is not the stored recipe of a run"),
        (b"model: {}\n", "it has no data, precision, trainer, callbacks"),
    ],
)
def test_a_damaged_recipe_is_named(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(content)
    with pytest.raises(UserError, match=told) as caught:
        load_recipe(path)
    assert str(path) in str(caught.value)
