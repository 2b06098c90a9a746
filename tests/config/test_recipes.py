"""Every recipe file: its opening comment, its composition, its targets, and what its precision means."""

from __future__ import annotations

import re
import shlex
from functools import cache
from pathlib import Path

import pytest
from omegaconf import DictConfig

from lightning_snnprec.cli.arguments import parse
from lightning_snnprec.config.compose import compose_recipe
from lightning_snnprec.config.location import group_options, recipes_dir
from lightning_snnprec.config.schema import check_recipe
from lightning_snnprec.precision import PrecisionConfig

FILES = sorted(path.relative_to(recipes_dir()) for path in recipes_dir().rglob("*.yaml"))
PRECISIONS = {
    "bf16": {},
    "fp32": {"mode": "fp32"},
    "fp16": {"mode": "fp16"},
    "fp8": {"mode": "fp8"},
    "fp8_delayed": {"mode": "fp8", "fp8_recipe": "delayed"},
    "fp8_current": {"mode": "fp8", "fp8_recipe": "current"},
    "fp8_block": {"mode": "fp8", "fp8_recipe": "block"},
    "mxfp8": {"mode": "fp8", "fp8_recipe": "mxfp8"},
    "nvfp4": {"mode": "fp8", "fp8_recipe": "nvfp4"},
    "fp8_native": {"mode": "fp8", "fp8_engine": "native"},
    "fp8_emulated": {"mode": "fp8", "fp8_engine": "emulated"},
}


@cache
def composed(*overrides: str) -> DictConfig:
    return compose_recipe(overrides)


def commands(file: Path) -> list[list[str]]:
    opening = re.match(r"(#.*\n)+", (recipes_dir() / file).read_text())
    assert opening, f"{file} does not open with a comment"
    lines = [line.removeprefix("#   ") for line in opening.group().splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith("snnprec ")]


@pytest.mark.parametrize("file", FILES, ids=str)
def test_a_file_opens_with_commands_that_use_it_and_compose(file: Path) -> None:
    found = commands(file)
    assert found
    chosen = f"{file.parent}={file.stem}"
    assert file.stem == "fit" or any(chosen in command for command in found)
    for command in found:
        request = parse(command)
        swept = [override.partition(",")[0] for override in request.overrides] if request.is_multirun else []
        check_recipe(composed(*(swept or request.overrides)), request.verb)


def test_bf16_lists_every_field_at_its_default() -> None:
    assert composed().precision == PrecisionConfig().to_dict()


@pytest.mark.parametrize("option", group_options("precision"))
def test_a_precision_recipe_means_what_its_name_says(option: str) -> None:
    assert check_recipe(composed(f"precision={option}"), "fit") == PrecisionConfig.from_any(PRECISIONS[option])
