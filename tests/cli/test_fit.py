"""`snnprec fit`: what it prints, keeps and resumes."""

from __future__ import annotations

import csv
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from omegaconf import OmegaConf

from lightning_snnprec.config.compose import compose_recipe
from lightning_snnprec.config.stored import load_recipe
from tests.cli.conftest import QUICK, Snnprec

# What `lightning_snnprec.cli.quiet` keeps from the user: pytest's own filter comes first.
pytestmark = [
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty:UserWarning"),
    pytest.mark.filterwarnings("ignore:The dirpath has changed from:UserWarning"),
]


def checkpoint(folder: Path, name: str = "last.ckpt") -> dict[str, Any]:
    content: dict[str, Any] = torch.load(folder / "checkpoints" / name, weights_only=True)
    return content


def optimizer_steps(folder: Path) -> int:
    return int(checkpoint(folder)["optimizer_states"][0]["state"][0]["step"])


def logged(folder: Path, key: str, version: int = 0) -> float:
    with (folder / "logs" / f"version_{version}" / "metrics.csv").open() as file:
        return float([row[key] for row in csv.DictReader(file) if row.get(key)][-1])


@pytest.fixture
def sigint() -> Iterator[None]:
    """Puts Ctrl-C back, which Lightning ignores once it has shut a run down."""
    handler = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, handler)


def test_the_outcome_is_printed_and_kept(snnprec: Snnprec, here: Path) -> None:
    outcome = snnprec("fit", *QUICK)
    assert outcome.status == 0
    (run,) = (here / "runs").iterdir()
    assert outcome.row("run") == f"runs/{run.name}"
    assert outcome.row("precision") == "bf16"
    assert outcome.row("trained").startswith("2 steps, 1 epochs; ")
    accuracy = logged(run, "val_acc")
    assert outcome.row("validation accuracy").startswith(f"{100 * accuracy:.2f} % (best {100 * accuracy:.2f} %, ")
    assert outcome.row("firing rate").startswith(f"{logged(run, 'val_firing_rate'):.3f} ")
    for layer in ("body.spike1", "body.spike2"):
        assert f"{layer} {logged(run, f'val_firing_rate/{layer}'):.3f}\n" in outcome.out
    assert sorted(path.name for path in run.iterdir()) == ["checkpoints", "config.yaml", "contract.json", "logs"]
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["best-epoch000.ckpt", "last.ckpt"]
    assert load_recipe(run / "config.yaml")["trainer"]["limit_train_batches"] == 2
    assert sorted(here.iterdir()) == [here / "runs"]


def test_the_printed_command_trains_on_in_the_same_folder(snnprec: Snnprec, here: Path) -> None:
    first = snnprec("fit", *QUICK, "run_dir=the run", "precision=fp16", "data.batch_size=33")
    command = shlex.split(first.row("train on"))
    assert command == ["snnprec", "fit", "--resume", "the run", "trainer.max_epochs=2"]
    second = snnprec(*command[1:])
    assert second.status == 0
    assert f"resuming from {here / 'the run' / 'checkpoints' / 'last.ckpt'}" in second.out
    assert second.row("trained").startswith("4 steps, 2 epochs; ")
    assert second.row("precision").startswith("fp16")
    assert optimizer_steps(here / "the run") == 4 - checkpoint(here / "the run")["SNNPrecision"]["skipped_steps"]
    stored = load_recipe(here / "the run" / "config.yaml")
    assert (stored["trainer"]["max_epochs"], stored["data"]["batch_size"]) == (2, 33)
    assert sorted(path.name for path in (here / "the run" / "logs").iterdir()) == ["version_0", "version_1"]
    assert sorted(here.iterdir()) == [here / "the run"]


def test_resume_without_a_path_takes_the_newest_run_and_another_precision(snnprec: Snnprec, here: Path) -> None:
    assert snnprec("fit", *QUICK, "runs_dir=mine", "run_dir=mine/a").status == 0
    assert snnprec("fit", *QUICK, "runs_dir=mine", "run_dir=mine/b").status == 0
    outcome = snnprec("fit", "--resume", "runs_dir=mine", "precision=fp32", "trainer.max_epochs=2")
    assert outcome.status == 0
    assert f"resuming from {here}/mine/b/checkpoints/last.ckpt" in outcome.out
    assert outcome.row("precision") == "fp32"
    assert (optimizer_steps(here / "mine" / "a"), optimizer_steps(here / "mine" / "b")) == (2, 4)


def test_a_run_can_go_on_in_another_folder(snnprec: Snnprec, here: Path, trained: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in trained.rglob("*")}
    outcome = snnprec("fit", "--resume", str(trained), "trainer.max_epochs=2", "run_dir=other")
    assert outcome.status == 0
    assert outcome.row("run") == "other"
    assert optimizer_steps(here / "other") == 4
    assert {path: path.stat().st_mtime_ns for path in trained.rglob("*")} == before


def test_nothing_to_resume(snnprec: Snnprec, here: Path) -> None:
    outcome = snnprec("fit", "--resume")
    assert outcome.status == 2
    assert (
        f"no run to continue: no checkpoints/last.ckpt below {here / 'runs'}; start one with snnprec fit"
        in outcome.complaint
    )
    assert list(here.iterdir()) == []


def test_a_run_that_has_come_to_its_end_says_how_to_train_on(snnprec: Snnprec, trained: Path) -> None:
    outcome = snnprec("fit", "--resume", str(trained))
    assert outcome.status == 2
    assert (
        "has trained 1 epochs, as many as trainer.max_epochs allows; to train on, add trainer.max_epochs=2"
        in outcome.complaint
    )
    outcome = snnprec("fit", "--resume", str(trained), "trainer.max_steps=2", "trainer.max_epochs=5")
    assert (
        "has trained 2 steps, as many as trainer.max_steps allows; to train on, add trainer.max_steps=4"
        in outcome.complaint
    )


def test_a_checkpoint_of_another_model_is_refused_and_untouched(snnprec: Snnprec, trained: Path) -> None:
    before = (trained / "config.yaml").read_bytes()
    outcome = snnprec("fit", "--resume", str(trained), "trainer.max_epochs=2", "model.net.hidden=[33]")
    assert outcome.status == 2
    assert "is a checkpoint of another model than the recipe's" in outcome.complaint
    assert "net.body.fc1.weight is [256, 64] there, [33, 64] here" in outcome.complaint
    assert "not in this model: net.body.fc2.weight, net.body.fc2.bias" in outcome.complaint
    assert (trained / "config.yaml").read_bytes() == before


def test_a_checkpoint_alone_goes_on_from_the_recipe_of_the_command_line(
    snnprec: Snnprec, here: Path, trained: Path
) -> None:
    (here / "alone.ckpt").write_bytes((trained / "checkpoints" / "last.ckpt").read_bytes())
    outcome = snnprec("fit", "--resume", "alone.ckpt", *QUICK, "trainer.max_epochs=2", "run_dir=new")
    assert outcome.status == 0
    assert "no stored recipe lies beside it" in outcome.out
    assert optimizer_steps(here / "new") == 4


def test_a_folder_that_holds_a_run_is_not_written_over(snnprec: Snnprec, trained: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in trained.rglob("*")}
    outcome = snnprec("fit", *QUICK, f"run_dir={trained}")
    assert outcome.status == 2
    assert f"holds a run already; continue it with snnprec fit --resume {trained}" in outcome.complaint
    assert {path: path.stat().st_mtime_ns for path in trained.rglob("*")} == before


def test_a_sweep_keeps_a_run_for_each_combination(snnprec: Snnprec, here: Path) -> None:
    outcome = snnprec("fit", "--multirun", *QUICK, "precision=fp32,bf16", "seed=3")
    assert outcome.status == 0
    (sweep,) = (here / "runs").iterdir()
    modes = [load_recipe(sweep / name / "config.yaml")["precision"]["mode"] for name in ("0", "1")]
    assert modes == ["fp32", "bf16"]
    assert outcome.out.count("validation accuracy") == 2
    first, second = (checkpoint(sweep / name)["state_dict"]["net.body.fc1.weight"] for name in ("0", "1"))
    assert not torch.equal(first, second)


def test_a_sweep_ends_at_a_refused_run_and_keeps_those_before(snnprec: Snnprec, here: Path) -> None:
    outcome = snnprec("fit", "--multirun", *QUICK, "precision=fp32,fp8")
    assert outcome.status == 2
    assert "mode='fp8' cannot run here" in outcome.complaint
    (sweep,) = (here / "runs").iterdir()
    assert sorted(path.name for path in sweep.iterdir()) == ["0", "multirun.yaml"]


def test_the_recipe_is_shown_without_running(snnprec: Snnprec, here: Path, trained: Path) -> None:
    outcome = snnprec("fit", "--cfg", "job", "precision=fp32", "run_dir=x")
    assert outcome.status == 0
    assert OmegaConf.create(outcome.out) == compose_recipe(["precision=fp32", "run_dir=x"])
    outcome = snnprec("fit", "--resume", str(trained), "--cfg", "job")
    shown = yaml.safe_load(outcome.out)
    assert shown["resume"] == str(trained / "checkpoints" / "last.ckpt")
    assert shown["trainer"]["limit_train_batches"] == 2
    assert list(here.iterdir()) == []


def test_a_run_without_validation_or_checkpoints(snnprec: Snnprec, here: Path) -> None:
    outcome = snnprec(
        "fit", *QUICK, "trainer.limit_val_batches=0", "callbacks=none", "trainer.enable_checkpointing=false",
        "trainer.logger=false",
    )  # fmt: skip
    assert outcome.status == 0
    assert outcome.row("validation accuracy") == "not measured: the run had no validation"
    assert "train on" not in outcome.out
    (run,) = (here / "runs").iterdir()
    assert sorted(path.name for path in run.iterdir()) == ["config.yaml", "contract.json"]


@pytest.mark.usefixtures("sigint")
def test_ctrl_c_ends_in_order_and_says_how_to_go_on(snnprec: Snnprec, here: Path) -> None:
    stop = ("+callbacks.stop._target_=tests.cli.stopping.Interrupt", "+callbacks.stop.epoch=1", "allow_any_target=true")
    outcome = snnprec("fit", *QUICK, *stop, "trainer.max_epochs=3", "run_dir=run")
    assert outcome.status == 130
    assert "interrupted; to go on from the last checkpoint: snnprec fit --resume run\n" in outcome.out
    assert "Traceback" not in outcome.err
    assert optimizer_steps(here / "run") == 2
    outcome = snnprec("fit", "--resume", "run")
    assert outcome.status == 2
    assert "'tests.cli.stopping.Interrupt' is not a class of" in outcome.complaint
    outcome = snnprec("fit", "--resume", "run", "allow_any_target=true", "callbacks.stop.epoch=9")
    assert outcome.status == 0
    assert optimizer_steps(here / "run") == 6
    assert outcome.row("train on").endswith("trainer.max_epochs=6 allow_any_target=true")


@pytest.mark.usefixtures("sigint")
def test_sigterm_ends_in_order_with_a_status_of_its_own(snnprec: Snnprec, here: Path) -> None:
    stop = ("+callbacks.stop._target_=tests.cli.stopping.Terminate", "+callbacks.stop.epoch=1", "allow_any_target=true")
    outcome = snnprec("fit", *QUICK, *stop, "trainer.max_epochs=3", "run_dir=run")
    assert outcome.status == 143
    assert "interrupted; to go on from the last checkpoint: snnprec fit --resume run\n" in outcome.out
    assert "Traceback" not in outcome.err
    assert optimizer_steps(here / "run") == 2


@pytest.mark.parametrize("key", ["limit_train_batches", "max_epochs", "max_steps"])
def test_a_run_without_a_batch_says_that_it_trained_nothing(snnprec: Snnprec, key: str) -> None:
    outcome = snnprec("fit", *(word for word in QUICK if key not in word), f"trainer.{key}=0")
    assert outcome.status == 0
    assert outcome.row("trained") == f"nothing: trainer.{key}=0 leaves no batch to train on"


def test_a_fault_of_the_program_keeps_its_traceback_and_the_run(snnprec: Snnprec, here: Path) -> None:
    fault = ("+callbacks.fault._target_=tests.cli.stopping.Fault", "allow_any_target=true")
    with pytest.raises(ZeroDivisionError, match="a fault of the program"):
        snnprec("fit", *QUICK, *fault, "run_dir=run")
    assert (here / "run" / "config.yaml").is_file()
