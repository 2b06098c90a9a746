"""Composing recipes: overrides that fail, one's own recipes, another Hydra application, a stored recipe as the base."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig

from lightning_snnprec.config.compose import HYDRA_VERSION_BASE, compose_recipe, store_for_composition
from lightning_snnprec.config.errors import UserError
from lightning_snnprec.config.location import recipes_dir
from lightning_snnprec.config.stored import load_recipe, save_recipe


def fault(*overrides: str, config_name: str = "fit") -> str:
    with pytest.raises(UserError) as caught:
        compose_recipe(overrides, config_name=config_name)
    return str(caught.value)


def test_overrides_reach_the_recipe() -> None:
    recipe = compose_recipe(
        ["precision=fp8_delayed", "precision.margin=1", "trainer.max_epochs=3", "+model.net.tau=4.0"]
    )
    assert (recipe.precision.mode, recipe.precision.fp8_recipe, recipe.precision.margin) == ("fp8", "delayed", 1)
    assert recipe.trainer.max_epochs == 3
    assert recipe.model.net.tau == 4.0


def test_a_key_that_does_not_exist_gets_a_near_one() -> None:
    told = fault("trainer.max_epoch=3")
    assert told.startswith(
        "unknown override 'trainer.max_epoch': the recipe has no such key; did you mean 'trainer.max_"
    )
    assert told.endswith("(to add a key that the recipe lacks, write +trainer.max_epoch=...)")
    assert "did you mean 'precision'?" in fault("precison=fp32")
    assert "'precision.mode'" in fault("mode=fp8")


def test_an_option_that_does_not_exist_gets_a_near_one() -> None:
    assert fault("precision=fp23").startswith(
        "precision=fp23: there is no such option; did you mean 'fp32'? the options are "
    )
    assert fault("model=resnet").startswith("model=resnet: there is no such option; the options are fc_snn")


@pytest.mark.parametrize("override", ["a=[1", "trainer.max_epochs=(", "precision"])
def test_a_malformed_override_is_named(override: str) -> None:
    told = fault(override)
    assert f"the override {override!r} is malformed" in told
    assert "trainer.max_epochs=3" in told


def test_a_main_recipe_that_does_not_exist_is_named() -> None:
    assert "nowhere" in fault(config_name="nowhere")


def test_recipes_of_ones_own_are_built_on_those_of_the_package(tmp_path: Path) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("# @package _global_\ntrainer:\n  max_epochs: 7\n")
    (tmp_path / "mine.yaml").write_text("defaults:\n  - fit\n  - override /precision: fp16\n  - _self_\nseed: 11\n")
    recipe = compose_recipe(["experiment=mine"], config_name="mine", config_dir=tmp_path)
    assert (recipe.seed, recipe.precision.mode, recipe.trainer.max_epochs) == (11, "fp16", 7)


def test_another_hydra_application_reaches_the_groups(tmp_path: Path) -> None:
    """As `recipes_dir` documents: the folder on that application's search path."""
    (tmp_path / "train.yaml").write_text("defaults:\n  - precision: fp8_delayed\n  - _self_\nmine: 1\n")
    (tmp_path / "train.py").write_text(
        "import hydra\n"
        "@hydra.main(version_base='1.3', config_path='.', config_name='train')\n"
        "def main(cfg): print(cfg.mine, cfg.precision.mode, cfg.precision.fp8_recipe, cfg.precision.margin)\n"
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "train.py", f"hydra.searchpath=[file://{recipes_dir()}]", "precision.margin=2"],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["1", "fp8", "delayed", "2"]


def on_stored(folder: Path, *overrides: str, changed: tuple[str, ...] = ()) -> DictConfig:
    recipe = load_recipe(save_recipe(compose_recipe(changed), folder))
    name = store_for_composition(recipe, overrides, folder)
    with initialize_config_dir(version_base=HYDRA_VERSION_BASE, config_dir=str(recipes_dir())):
        return compose(name, overrides=list(overrides))


def test_a_stored_recipe_keeps_what_it_had(tmp_path: Path) -> None:
    changed = ("precision=fp8_delayed", "precision.margin=3", "data.batch_size=7", "+model.net.tau=3.5", "seed=5")
    recipe = on_stored(tmp_path, changed=changed)
    expected = compose_recipe(changed)
    expected.run_dir = str(tmp_path)
    assert recipe == expected


def test_an_option_replaces_a_part_of_a_stored_recipe_whole(tmp_path: Path) -> None:
    recipe = on_stored(tmp_path, "precision=fp32", changed=("precision=fp8_delayed", "precision.margin=3", "seed=5"))
    assert recipe.precision == compose_recipe(["precision=fp32"]).precision
    assert recipe.seed == 5


def test_values_of_a_stored_recipe_are_overridden_by_hydras_rules(tmp_path: Path) -> None:
    assert on_stored(tmp_path, "trainer.max_epochs=9", "+model.net.tau=3.0").model.net.tau == 3.0
    with pytest.raises(Exception, match="max_epoch"):
        on_stored(tmp_path, "trainer.max_epoch=9")


def test_an_experiment_is_refused_on_a_stored_recipe(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="experiment=digits_plif is a whole recipe, and the run has its own"):
        on_stored(tmp_path, "experiment=digits_plif")
