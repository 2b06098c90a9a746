"""Help: quick, complete, and with examples that work."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest

from lightning_snnprec.cli.arguments import parse
from lightning_snnprec.cli.verbs import VERBS
from lightning_snnprec.config.compose import compose_recipe
from lightning_snnprec.config.schema import check_recipe
from tests.cli.conftest import Snnprec

HEAVY = ("torch", "lightning", "hydra", "omegaconf", "numpy", "sklearn")


@pytest.mark.parametrize("asked", [[], ["--help"], ["-h"], ["help"]])
def test_the_overview_lists_every_command(snnprec: Snnprec, asked: list[str]) -> None:
    outcome = snnprec(*asked)
    assert outcome.status == 0
    for verb in VERBS.values():
        assert f"  {verb.name} " in outcome.out
        assert verb.summary in outcome.out


@pytest.mark.parametrize("name", sorted(VERBS))
def test_a_command_has_help_with_examples(snnprec: Snnprec, name: str) -> None:
    outcome = snnprec(name, "--help")
    assert outcome.status == 0
    assert outcome.out.startswith(f"usage: snnprec {name}")
    for line, what in VERBS[name].examples:
        assert f"  {line}" in outcome.out
        assert what in outcome.out


@pytest.mark.parametrize("line", [line for verb in VERBS.values() if verb.takes_overrides for line, _ in verb.examples])
def test_an_example_composes(line: str) -> None:
    request = parse(shlex.split(line)[1:])
    single = (
        [override.partition(",")[0] for override in request.overrides] if request.is_multirun else request.overrides
    )
    check_recipe(compose_recipe(single), request.verb)


def test_help_imports_nothing_heavy() -> None:
    """The command line on its own: a stand-in for the package, so that only what the command line imports counts."""
    code = (
        "import sys, types, importlib.util\n"
        "spec = importlib.util.find_spec('lightning_snnprec')\n"
        "package = types.ModuleType('lightning_snnprec'); package.__path__ = spec.submodule_search_locations\n"
        "sys.modules['lightning_snnprec'] = package\n"
        "from lightning_snnprec.cli import main\n"
        "status = main(['--help']) or main(['fit', '--help']) or main(['doctor', '--help'])\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], status)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[] 0"


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("fti", "no command 'fti'; did you mean 'snnprec fit'?"),
        ("frobnicate", "no command 'frobnicate'; the commands are fit, validate, test, predict, plan, doctor, bench"),
        ("precision=fp32", "overrides follow a command, as in 'snnprec fit precision=fp32'"),
    ],
)
def test_an_unknown_command_is_told_with_a_near_one(snnprec: Snnprec, word: str, told: str) -> None:
    outcome = snnprec(word)
    assert outcome.status == 2
    assert told in outcome.complaint
    assert outcome.out == ""
