"""`snnprec validate` and `snnprec test`: the metrics of a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

from lightning_snnprec.cli.arguments import Request, parse
from lightning_snnprec.cli.checkpoint import check_same_model, nonfinite_note, read_checkpoint, restoring
from lightning_snnprec.cli.hydra_job import Job, run_under_hydra
from lightning_snnprec.cli.source import Source, evaluated_run
from lightning_snnprec.cli.terminal import complain, is_first_process, say, show_rows
from lightning_snnprec.training.build import Run, build_run

Evaluation: TypeAlias = Callable[[Job, Run, Path], None]


def run(arguments: Sequence[str]) -> int:
    """Evaluates a checkpoint on the validation or test set.

    Returns:
        Exit status 0.

    Raises:
        UserError: anything in the request, the recipe or the checkpoint that cannot be done.
    """
    request = parse(arguments)
    evaluate(request, partial(_evaluate, request))
    return 0


def evaluate(request: Request, task: Evaluation) -> None:
    """Rebuilds the run of a checkpoint and hands it to `task`.

    Args:
        request: the command line.
        task: called with the job, the run and the checkpoint.

    Raises:
        UserError: there is no such checkpoint, it is of another model, or the recipe cannot be built.
    """
    source = evaluated_run(request)
    assert source.found is not None
    run_under_hydra(
        partial(_rebuild, request, source, task),
        source.arguments,
        command_line=request.command_line(source.found.checkpoint),
        config_name=source.config_name,
    )


def _rebuild(request: Request, source: Source, task: Evaluation, job: Job) -> None:
    checkpoint = Path(job.recipe.checkpoint)
    found = source.found
    folder = found.folder if found is not None and found.folder is not None else job.folder
    made = build_run(job.recipe, folder, command=request.verb)
    content = read_checkpoint(checkpoint)
    check_same_model(content, made.module, checkpoint)
    say(f"checkpoint: {checkpoint}")
    if found is not None and found.recipe is None:
        say("no stored recipe lies beside it: the recipe was composed from the command line")
    told = nonfinite_note(content, made.module, checkpoint)
    if told is not None and is_first_process():
        complain(f"{told}; its results mean nothing")
    with restoring(checkpoint):
        task(job, made, checkpoint)


def _evaluate(request: Request, job: Job, made: Run, checkpoint: Path) -> None:
    evaluate = made.trainer.validate if request.verb == "validate" else made.trainer.test
    (metrics,) = evaluate(made.module, datamodule=made.data, ckpt_path=checkpoint, verbose=False) or [{}]
    show_rows([(name, f"{value:.4f}") for name, value in metrics.items()])
