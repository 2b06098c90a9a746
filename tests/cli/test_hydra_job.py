"""Running a task under Hydra: its folder, its exceptions, and `sys.argv`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from lightning_snnprec.cli.hydra_job import Job, discard_folder, run_under_hydra
from lightning_snnprec.config.errors import UserError


def test_sys_argv_is_whole_while_a_task_runs_and_as_before_afterwards(here: Path) -> None:
    before, seen = list(sys.argv), []
    typed = ["fit", "--resume", "/x y/last.ckpt", "seed=3"]
    run_under_hydra(lambda job: seen.append((list(sys.argv), job.recipe.seed)), ["seed=3"], command_line=typed)
    assert seen == [([before[0], *typed], 3)]
    assert sys.argv == before


@pytest.mark.parametrize("value", [None, "1"])
def test_the_environment_of_a_task_is_the_users_own(
    here: Path, monkeypatch: pytest.MonkeyPatch, value: str | None
) -> None:
    monkeypatch.delenv("HYDRA_FULL_ERROR", raising=False)
    if value:
        monkeypatch.setenv("HYDRA_FULL_ERROR", value)
    seen = []
    run_under_hydra(lambda job: seen.append(os.environ.get("HYDRA_FULL_ERROR")), [], command_line=["fit"])
    assert seen == [value]
    assert os.environ.get("HYDRA_FULL_ERROR") == value


@pytest.mark.parametrize("arguments", [[], ["--multirun", "seed=1,2"]])
def test_a_tasks_exception_comes_out_as_it_was(here: Path, arguments: list[str]) -> None:
    error = LookupError("a fault of the program")

    def task(job: Job) -> None:
        raise error

    with pytest.raises(LookupError) as caught:
        run_under_hydra(task, arguments, command_line=["fit"])
    assert caught.value is error
    assert caught.traceback[-1].name == "task"


def test_each_job_of_a_sweep_has_its_own_recipe_and_folder(here: Path) -> None:
    jobs: list[Job] = []
    run_under_hydra(jobs.append, ["--multirun", "seed=1,2", "precision=fp32,bf16"], command_line=["fit"])
    assert [(job.recipe.seed, job.recipe.precision.mode) for job in jobs] == [
        (1, "fp32"), (1, "bf16"), (2, "fp32"), (2, "bf16"),
    ]  # fmt: skip
    assert all(job.swept for job in jobs)
    assert [job.folder.name for job in jobs] == ["0", "1", "2", "3"]


def test_a_recipe_that_does_not_compose_leaves_nothing(here: Path) -> None:
    with pytest.raises(UserError, match="unknown override"):
        run_under_hydra(lambda job: None, ["nope=1"], command_line=["fit"])
    assert list(here.iterdir()) == []


def test_only_empty_folders_below_the_working_directory_are_discarded(here: Path) -> None:
    def discard(folder: Path) -> None:
        discard_folder(Job(None, folder, swept=False))  # type: ignore[arg-type]

    (here / "a" / "b").mkdir(parents=True)
    (here / "kept").mkdir()
    (here / "kept" / "file").touch()
    discard(here / "a" / "b")
    discard(here / "kept")
    discard(here)
    assert [path.name for path in here.iterdir()] == ["kept"]
    outside = here.parent / "outside" / "run"
    outside.mkdir(parents=True)
    discard(outside)
    assert outside.parent.is_dir()
    assert not outside.exists()
