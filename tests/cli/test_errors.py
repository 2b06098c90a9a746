"""What the user can put right: exit status 2, one message with the remedy, no traceback, nothing left behind."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.cli.conftest import QUICK, Snnprec

CASES = [
    ("+trainer.max_epoch=3", "trainer.max_epoch: Trainer has no argument", "did you mean 'max_epochs'"),
    ("precision=fp9", "precision=fp9: there is no such option", "the options are bf16"),
    ("+precision.mod=fp8", "unknown field 'mod'", "did you mean mode?"),
    ("precision=fp8", "cannot run here", "transformer_engine"),
    ("precision.include=[net]", "include=('net',) needs mode='fp8'", "leave include out"),
    ("precision=fp8_emulated precision.include=[nett]", "include pattern 'nett' matches no module", "'net'"),
    ("+trainer.precision=bf16-mixed", "trainer.precision='bf16-mixed' and the recipe's precision group", "leave"),
    ("trainer.devices=2", "strategy='snn' runs on one device", "strategy='snn_ddp' or devices=1"),
    ("trainer.strategy=nope", "trainer: ", "strategy='nope'"),
    ("model.net.neuron=lfi", "model.net: ", "Did you mean 'lif'?"),
    ("model.optimizer.lr=-1", "model.optimizer: ", "-1"),
    ("data.batch_size=0", "data: ", "batch_size=0: needs an int >= 1"),
    ("data.val_fraction=0.0001", "val_fraction=0.0001", "change the fractions"),
    ("model.num_classes=5", "labels must be in 0..4", "raise num_classes"),
    ("model.net.in_features=63", "in_features=63", "64 values"),
    ("seed=-1", "seed=-1 must be a whole number", "null"),
    ("model.net=null", "model: SNNClassifier: net=None: needs the network", "nn.Module"),
    ("trainer.accumulate_grad_batches=0", "trainer.accumulate_grad_batches=0: needs an int >= 1", ""),
    ("trainer.gradient_clip_val=-1.0", "trainer.gradient_clip_val=-1.0: needs a finite number >= 0", ""),
    ("trainer.check_val_every_n_epoch=0", "trainer.check_val_every_n_epoch=0: needs an int >= 1", ""),
    ("trainer.val_check_interval=0", "trainer.val_check_interval=0: needs an int >= 1", ""),
    ("precision=null", "precision takes the name of an option", "one of bf16"),
    ("callbacks=null", "callbacks takes the name of an option", "none"),
    ("=3", "the override '=3' has no key before '='", "trainer.max_epochs=3"),
    ("run_dir=", "'run_dir=' names no folder", "write run_dir=PATH"),
    ("runs_dir=null", "'runs_dir=null' names no folder", "write runs_dir=PATH"),
    ("run_dir=runs/ünï", "'run_dir=runs/ünï' is malformed", """must be quoted: 'run_dir="runs/ünï"'"""),
    ("+callbacks.extra=3", "callbacks.extra must be a mapping with a '_target_', got 3", ""),
]


@pytest.mark.parametrize(("override", "fault", "remedy"), CASES, ids=[case[0] for case in CASES])
def test_a_faulty_recipe(snnprec: Snnprec, here: Path, override: str, fault: str, remedy: str) -> None:
    single = [word for word in QUICK if word.partition("=")[0] != override.partition("=")[0]]
    outcome = snnprec("fit", *single, *override.split())
    assert outcome.status == 2
    assert fault in outcome.complaint
    assert remedy in outcome.complaint
    assert "Traceback" not in outcome.err
    assert list(here.iterdir()) == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks for a GPU where there is none")
def test_a_gpu_that_is_not_there(snnprec: Snnprec, here: Path) -> None:
    outcome = snnprec("fit", "trainer=gpu")
    assert outcome.status == 2
    assert "CUDAAccelerator" in outcome.complaint
    assert "['cpu']" in outcome.complaint
    assert list(here.iterdir()) == []


def test_a_sweep_of_several_devices(snnprec: Snnprec, here: Path) -> None:
    outcome = snnprec("fit", "--multirun", "trainer=ddp_cpu", "seed=1,2")
    assert outcome.status == 2
    assert "--multirun trains on one device, but this recipe asks for 2" in outcome.complaint
    assert list(here.iterdir()) == []


def test_flags_of_hydra_that_contradict_each_other(snnprec: Snnprec) -> None:
    outcome = snnprec("fit", "--cfg", "job", "--multirun")
    assert outcome.status == 2
    assert "Only one of --run, --multirun, --cfg" in outcome.complaint


def test_a_value_that_a_flag_does_not_have(snnprec: Snnprec) -> None:
    outcome = snnprec("fit", "--cfg", "nope")
    assert outcome.status == 2
    assert "invalid choice: 'nope'" in outcome.err


@pytest.mark.parametrize("below", ["afile", "afile/deeper", "/proc/xx"])
@pytest.mark.parametrize("key", ["runs_dir", "run_dir"])
def test_a_folder_that_cannot_be_made(snnprec: Snnprec, here: Path, key: str, below: str) -> None:
    (here / "afile").write_text("kept")
    outcome = snnprec("fit", *QUICK, f"{key}={below}")
    assert outcome.status == 2
    assert f"the folder {below}" in outcome.complaint
    assert "cannot be used: " in outcome.complaint
    assert (here / "afile").read_text() == "kept"
    assert [path.name for path in here.iterdir()] == ["afile"]


def test_a_folder_that_cannot_be_written(snnprec: Snnprec, here: Path) -> None:
    outcome = snnprec("fit", *QUICK, "run_dir=/proc")
    assert outcome.status == 2
    assert "the run's folder /proc cannot be written: " in outcome.complaint


def test_ctrl_c_while_the_command_is_imported(snnprec: Snnprec, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def interrupted(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "lightning_snnprec.cli.failures":
            raise KeyboardInterrupt
        return real(name, *arguments, **options)

    def stopped(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(builtins, "__import__", interrupted)
    monkeypatch.setattr("importlib.import_module", stopped)
    outcome = snnprec("fit")
    assert (outcome.status, outcome.err) == (130, "snnprec: interrupted\n")


@pytest.mark.parametrize("verb", ["validate", "test", "predict"])
def test_no_checkpoint(snnprec: Snnprec, here: Path, verb: str) -> None:
    assert f"snnprec {verb} needs a checkpoint: snnprec {verb} PATH" in snnprec(verb).complaint
    assert "no such file or folder" in snnprec(verb, "nowhere.ckpt").complaint
    (here / "junk.ckpt").write_text("not a checkpoint")
    outcome = snnprec(verb, "junk.ckpt")
    assert outcome.status == 2
    assert f"{here / 'junk.ckpt'} is not a checkpoint, or is truncated or damaged: " in outcome.complaint


def test_a_fault_of_the_program_keeps_its_traceback(snnprec: Snnprec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lightning_snnprec.cli.plan.seed", lambda recipe: [][1])
    with pytest.raises(IndexError):
        snnprec("plan")
