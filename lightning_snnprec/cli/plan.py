"""`snnprec plan`: what a precision would do to the recipe's model on a device, which need not be here."""

from __future__ import annotations

from collections.abc import Sequence

from lightning_snnprec.cli.arguments import parse
from lightning_snnprec.cli.hydra_job import Job, run_under_hydra
from lightning_snnprec.cli.source import without_folder
from lightning_snnprec.cli.terminal import say, show_rows, show_table
from lightning_snnprec.config.errors import UserError
from lightning_snnprec.config.schema import check_recipe
from lightning_snnprec.precision import Facts, device_profile, make_plan, probe, refusals
from lightning_snnprec.precision.contract import contract_table, contracts
from lightning_snnprec.precision.sensitive import sensitive_paths, sensitive_table
from lightning_snnprec.training.build import build_module, seed


def run(arguments: Sequence[str]) -> int:
    """Prints facts of the device, the decision on each module, the plan's digest, and what would be refused.

    Returns:
        Exit status 0, also where the device would refuse.

    Raises:
        UserError: a fault of the request or the recipe.
    """
    request = parse(arguments)
    source = without_folder(request)
    run_under_hydra(_plan, source.arguments, command_line=request.command_line(None), config_name=source.config_name)
    return 0


def _plan(job: Job) -> None:
    precision = check_recipe(job.recipe, "plan")
    facts = _facts(job.recipe.get("device"))
    seed(job.recipe)
    module = build_module(job.recipe)
    try:
        plan = make_plan(module, precision, facts)
    except ValueError as error:
        raise UserError(f"precision: {error}") from error
    show_rows(facts.lines())
    say()
    show_table(plan.table())
    say()
    if job.recipe.get("contract"):
        show_table(contract_table(contracts(module, precision, plan)))
        say()
        show_table(sensitive_table(sensitive_paths(precision, probe().device)))
        say()
    reasons = list(refusals(precision, facts))
    if precision.mode == "fp8" and not plan.converted:
        reasons.append(
            "mode='fp8' would convert no layer of this model, so nothing would run in FP8; use precision=bf16"
        )
    where = "this machine" if facts.here else facts.device_name
    if reasons:
        say(f"{where} would refuse mode={precision.mode!r}:")
        for reason in reasons:
            say(f"- {reason}")
    else:
        say(f"{where} can run mode={precision.mode!r}.")


def _facts(device: object) -> Facts:
    if device is None:
        return probe()
    try:
        return device_profile(str(device))
    except ValueError as error:
        raise UserError(str(error)) from error
