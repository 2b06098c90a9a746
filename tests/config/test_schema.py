"""Checks of a composed recipe."""

from __future__ import annotations

import pytest
from omegaconf import open_dict

from lightning_snnprec.config.compose import compose_recipe
from lightning_snnprec.config.errors import UserError
from lightning_snnprec.config.schema import check_recipe, plain_recipe
from lightning_snnprec.precision import PrecisionConfig


def test_the_default_recipe_passes_and_asks_for_bf16() -> None:
    assert check_recipe(compose_recipe(), "fit") == PrecisionConfig("bf16")


def test_unknown_keys_and_missing_parts_are_told_at_once() -> None:
    recipe = compose_recipe()
    with open_dict(recipe):
        recipe.precison = {"mode": "fp8"}
        del recipe["data"]
        del recipe.model["_target_"]
    with pytest.raises(UserError) as caught:
        check_recipe(recipe, "fit")
    lines = str(caught.value).splitlines()
    assert lines == [
        "the recipe has an unknown key 'precison'; did you mean 'precision'?",
        "the recipe has no 'data' part; add '- data: <option>' to its defaults list",
        "the 'model' part of the recipe has no '_target_', so nothing says which class to build",
    ]


@pytest.mark.parametrize(
    ("override", "command", "owner"),
    [
        ("device=h200", "fit", "plan"),
        ("resume=x", "plan", "fit"),
        ("checkpoint=x", "fit", "validate, test, predict"),
        ("input=x", "test", "predict"),
        ("output=x", "fit", "predict"),
    ],
)
def test_a_request_of_another_command_is_refused(override: str, command: str, owner: str) -> None:
    with pytest.raises(UserError, match=f"{override} is for snnprec {owner}, not for snnprec {command}; "):
        check_recipe(compose_recipe([override]), command)


def test_all_faults_of_a_precision_are_told() -> None:
    recipe = compose_recipe(["precision.mode=fp8", "precision.fp8_recipe=blok", "precision.margin=-1"])
    with pytest.raises(UserError) as caught:
        check_recipe(recipe, "fit")
    told = str(caught.value)
    assert told.startswith("precision: ")
    assert "fp8_recipe='blok'" in told
    assert "did you mean 'block'?" in told
    assert "margin=-1" in told


def test_an_interpolation_to_nowhere_is_named() -> None:
    with pytest.raises(UserError, match=r"cannot be resolved: .*nope"):
        plain_recipe(compose_recipe(["data.batch_size=${nope}"]))


def test_a_missing_value_is_named() -> None:
    with pytest.raises(UserError, match=r"data\.batch_size"):
        plain_recipe(compose_recipe(["data.batch_size=???"]))
