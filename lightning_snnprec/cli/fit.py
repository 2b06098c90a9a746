"""`snnprec fit`: trains from a recipe, and says what came of it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from lightning.pytorch.utilities.exceptions import SIGTERMException

from lightning_snnprec.cli.arguments import parse
from lightning_snnprec.cli.checkpoint import (
    check_resumable,
    check_same_model,
    check_something_left,
    read_checkpoint,
    restoring,
)
from lightning_snnprec.cli.divergence import LossWatch, divergence
from lightning_snnprec.cli.failures import explain
from lightning_snnprec.cli.fit_report import report, report_interruption
from lightning_snnprec.cli.hydra_job import Job, discard_folder, nothing_left_behind, run_under_hydra
from lightning_snnprec.cli.source import Source, new_run, resumed_run
from lightning_snnprec.cli.terminal import complain, is_first_process, say
from lightning_snnprec.config.errors import UserError
from lightning_snnprec.config.stored import RECIPE_FILE, save_recipe
from lightning_snnprec.precision.contract import CONTRACT_FILE, save_contract
from lightning_snnprec.training.build import Run, build_run

_TERMINATED_STATUS = 143


def run(arguments: Sequence[str]) -> int:
    """Trains once, or once for each combination of a `--multirun`.

    Returns:
        Exit status 0; 1 where training diverged.

    Raises:
        UserError: anything in the request, the recipe or the checkpoint that cannot be done.
        KeyboardInterrupt: Ctrl-C, after Lightning has shut the run down.
        SystemExit: with status 143, after SIGTERM in the same way.
    """
    request = parse(arguments)
    source = new_run(request) if request.place is None else resumed_run(request)
    place = source.found.checkpoint if source.found else None
    statuses: list[int] = []
    run_under_hydra(
        lambda job: statuses.append(_fit(source, job)),
        source.arguments,
        command_line=request.command_line(place),
        config_name=source.config_name,
    )
    return max(statuses, default=0)


def _fit(source: Source, job: Job) -> int:
    resumed = source.found is not None and source.found.folder == job.folder
    with nothing_left_behind(job):
        checkpoint = Path(job.recipe.resume) if job.recipe.get("resume") else None
        made = build_run(job.recipe, job.folder)
        _check_folder(job, resumed=resumed)
        _check_one_process(job, made)
        if checkpoint is not None:
            content = read_checkpoint(checkpoint)
            check_same_model(content, made.module, checkpoint)
            check_resumable(content, made.module, checkpoint)
            check_something_left(content, made.trainer, checkpoint)
    if checkpoint is not None:
        say(f"resuming from {checkpoint}")
        if source.found is not None and source.found.recipe is None:
            say("no stored recipe lies beside it: the recipe was composed from the command line")
    _save(job, made)
    watch = LossWatch()
    made.trainer.callbacks.insert(0, watch)  # type: ignore[attr-defined]
    started = time.perf_counter()
    try:
        with restoring(checkpoint):
            _train(made, checkpoint)
    except Exception as error:
        if explain(error) is not None and not resumed and not watch.trained:
            _withdraw(job, made)
        raise
    return _conclude(job, made, watch, time.perf_counter() - started)


def _save(job: Job, made: Run) -> None:
    if not is_first_process():
        return
    try:
        save_recipe(job.recipe, job.folder)
        save_contract(made.module, made.precision, made.plan, job.folder)
    except OSError as error:
        raise UserError(
            f"the run's folder {job.folder} cannot be written: {error.strerror or error}; choose another run_dir or "
            "runs_dir"
        ) from error


def _conclude(job: Job, made: Run, watch: LossWatch, seconds: float) -> int:
    if not is_first_process():
        # Where another launcher than Lightning's started this process, Hydra made it a folder of its own.
        discard_folder(job)
        # A further process that failed would have Lightning's launcher stop the first before it has reported.
        return 0
    diverged = divergence(made, watch)
    report(made, job.recipe, seconds, trained=watch.trained, diverged=diverged is not None)
    if diverged is None:
        return 0
    complain(diverged)
    return 1


def _train(made: Run, checkpoint: Path | None) -> None:
    try:
        made.trainer.fit(made.module, datamodule=made.data, ckpt_path=checkpoint)
    except SIGTERMException:
        report_interruption(made)
        raise SystemExit(_TERMINATED_STATUS) from None
    except SystemExit:
        # Lightning turns Ctrl-C into an orderly end of the run, and then exits with status 1.
        if not made.trainer.interrupted:
            raise
        report_interruption(made)
        raise KeyboardInterrupt from None


def _withdraw(job: Job, made: Run) -> None:
    """Takes back what a run that was refused before its first step has written: its recipe and its log."""
    if not is_first_process():
        return
    for name in (RECIPE_FILE, CONTRACT_FILE):
        (job.folder / name).unlink(missing_ok=True)
    # Not the Trainer's own log_dir, which asks the other processes, and they may be gone.
    log = Path(getattr(made.trainer.logger, "log_dir", None) or job.folder).absolute()
    if job.folder in log.parents:
        shutil.rmtree(log, ignore_errors=True)
        for folder in log.parents:
            if folder == job.folder or any(folder.iterdir()):
                break
            folder.rmdir()
    discard_folder(job)


def _check_one_process(job: Job, made: Run) -> None:
    if job.swept and made.trainer.world_size > 1:
        raise UserError(
            f"--multirun trains on one device, but this recipe asks for {made.trainer.world_size}: the further "
            "processes would repeat the whole sweep; start the runs one by one, or set trainer=default"
        )


def _check_folder(job: Job, *, resumed: bool) -> None:
    if is_first_process() and not resumed and (job.folder / RECIPE_FILE).exists():
        raise UserError(
            f"the folder {job.folder} holds a run already; continue it with snnprec fit --resume {job.folder}, "
            "or choose another run_dir"
        )
