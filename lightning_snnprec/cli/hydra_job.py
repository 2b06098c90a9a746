"""Running a task under Hydra itself, with errors that stay exceptions and a `sys.argv` that can be run again."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from lightning_snnprec.cli.quiet import quieten_known_warnings
from lightning_snnprec.config.compose import HYDRA_VERSION_BASE, composition_fault
from lightning_snnprec.config.errors import UserError
from lightning_snnprec.config.location import MAIN_RECIPE, recipes_dir

_FULL_ERROR = "HYDRA_FULL_ERROR"
_PARSING = "snnprec"


@dataclass(frozen=True)
class Job:
    """One run that Hydra has composed.

    Args:
        recipe: the composed recipe.
        folder: the run's folder, which Hydra has made.
        swept: whether it is one run of a `--multirun`.
    """

    recipe: DictConfig
    folder: Path
    swept: bool


Task = Callable[[Job], None]


class _Escape(BaseException):
    """Carries a task's exception past Hydra, which would print it in its own way and exit with status 1."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def run_under_hydra(
    task: Task, arguments: Sequence[str], *, command_line: Sequence[str], config_name: str = MAIN_RECIPE
) -> None:
    """Composes the recipe and runs the task on it, or does what a flag such as `--cfg job` asks instead.

    Args:
        task: called once, or once for each run of a `--multirun`.
        arguments: flags and overrides for Hydra.
        command_line: what `sys.argv[1:]` is while the task runs: Lightning's DDP launcher starts further processes
            with it.
        config_name: the main recipe.

    Raises:
        UserError: the recipe cannot be composed.
        Exception: whatever the task raised, with its own traceback.
    """
    program = sys.argv[0]
    before = list(sys.argv)
    environment = os.environ.get(_FULL_ERROR)

    def job(recipe: DictConfig) -> None:
        sys.argv[:] = [program, *command_line]
        _set_full_error(environment)
        runtime = HydraConfig.get()
        swept = runtime.mode == RunMode.MULTIRUN
        quieten_known_warnings()
        try:
            task(Job(recipe, Path(runtime.runtime.output_dir), swept))
        except Exception as error:  # noqa: BLE001 - raised again, unchanged, on the other side of Hydra
            raise _Escape(error) from None

    decorated = hydra.main(version_base=HYDRA_VERSION_BASE, config_path=str(recipes_dir()), config_name=config_name)(
        job
    )
    sys.argv[:] = [_PARSING, *arguments]
    _set_full_error("1")
    try:
        decorated()
    except _Escape as escape:
        raise escape.error from escape.error.__cause__
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise UserError(composition_fault(error, arguments)) from error
    except OSError as error:
        # The task's own come as _Escape: this is Hydra making the run's folder, or reading a folder of recipes.
        raise UserError(
            f"the folder {error.filename} cannot be used: {error.strerror or error}; runs go below runs_dir=, or into "
            "run_dir="
        ) from error
    except SystemExit as stop:
        # Hydra itself has written what is wrong with its flags; a task that exits has called sys.argv its own.
        raise SystemExit(2 if stop.code == 1 and sys.argv[0] == _PARSING else stop.code) from None
    finally:
        sys.argv[:] = before
        _set_full_error(environment)


def _set_full_error(value: str | None) -> None:
    if value is None:
        os.environ.pop(_FULL_ERROR, None)
    else:
        os.environ[_FULL_ERROR] = value


def discard_folder(job: Job) -> None:
    """Removes a run's folder if nothing was written to it, and then the folders above it that are empty, too.

    The working directory, and whatever lies outside of it above the run's folder, is left alone.
    """
    folder, here = job.folder, Path.cwd()
    if job.swept:
        _discard_sweep_record(folder.parent)
    if folder == here or folder in here.parents:
        return
    try:
        folder.rmdir()
        while here in folder.parent.parents:
            folder = folder.parent
            folder.rmdir()
    except OSError:
        return


def _discard_sweep_record(folder: Path) -> None:
    """Removes Hydra's own record of a sweep none of whose runs came to be."""
    others = [path for path in folder.iterdir() if path.name != "multirun.yaml"]
    if all(path.is_dir() and not any(path.iterdir()) for path in others):
        (folder / "multirun.yaml").unlink(missing_ok=True)


@contextmanager
def nothing_left_behind(job: Job) -> Iterator[None]:
    """Discards the run's empty folder when the block fails."""
    try:
        yield
    except BaseException:
        discard_folder(job)
        raise
