"""A run whose loss or weights end as NaN or Inf says so, since when, and what to do; its checkpoints are told apart."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from lightning_snnprec.cli.divergence import LossWatch, nonfinite_weights
from tests.cli.conftest import QUICK, Snnprec

pytestmark = [
    pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty:UserWarning"),
    pytest.mark.filterwarnings("ignore:The dirpath has changed from:UserWarning"),
]


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_an_infinite_learning_rate(snnprec: Snnprec, here: Path, precision: str) -> None:
    outcome = snnprec("fit", *QUICK, "model.optimizer.lr=inf", f"precision={precision}", "run_dir=run")
    assert outcome.status == 1
    assert "training diverged: " in outcome.complaint
    assert "NaN or Inf in net.body.fc1.weight" in outcome.complaint
    assert "lower model.optimizer.lr, or clip with trainer.gradient_clip_val=1.0" in outcome.complaint
    assert ("precision=fp32" in outcome.complaint) == (precision != "fp32")
    assert outcome.row("run") == "run"
    assert "train on" not in outcome.out


def test_the_step_is_named_from_which_on_the_loss_was_not_finite(snnprec: Snnprec) -> None:
    poison = ("+callbacks.poison._target_=tests.cli.stopping.Poison", "+callbacks.poison.step=3")
    quick = [word for word in QUICK if "limit_train" not in word]
    outcome = snnprec("fit", *quick, "trainer.limit_train_batches=4", *poison, "allow_any_target=true")
    assert outcome.status == 1
    assert "the loss has not been finite since step 3; NaN or Inf in net." in outcome.complaint


def test_a_sweep_goes_on_after_a_run_that_diverged(snnprec: Snnprec) -> None:
    outcome = snnprec("fit", "--multirun", *QUICK, "model.optimizer.lr=inf,0.001")
    assert outcome.status == 1
    assert outcome.err.count("training diverged") == 1
    assert outcome.out.count("validation accuracy") == 2


@pytest.mark.parametrize(
    ("losses", "since"),
    [([1, 2], None), ([1, torch.nan, 2], None), ([1, torch.inf, torch.nan], 7), ([torch.nan], 6), ([], None)],
)
def test_only_an_unbroken_end_counts(losses: list[float], since: int | None) -> None:
    watch, module = LossWatch(), torch.nn.Linear(1, 1)
    module.device = torch.device("cpu")  # type: ignore[assignment]
    for step, loss in enumerate(losses, start=5):  # a run that goes on after its fifth step
        trainer: Any = SimpleNamespace(global_step=step)
        watch.on_train_batch_start(trainer, module, None, 0)  # type: ignore[arg-type]
        watch.on_train_batch_end(trainer, module, {"loss": torch.tensor(loss)}, None, 0)  # type: ignore[arg-type]
    assert watch.bad_since() == since
    assert watch.trained == bool(losses)


def test_weights_that_are_not_finite_are_found_in_every_dtype() -> None:
    state: dict[str, Any] = {"mask": torch.tensor([-torch.inf]), "text": "x", "count": torch.tensor([3])}
    state |= {"bad": torch.tensor([1.0, torch.nan], dtype=torch.bfloat16)}
    state |= {
        "bad8": torch.tensor([1.0, torch.nan]).to(torch.float8_e4m3fn),
        "good8": torch.ones(2).to(torch.float8_e5m2),
    }
    assert nonfinite_weights(state, ["text", "count", "bad", "bad8", "good8", "gone"]) == ["bad", "bad8"]


@pytest.mark.parametrize("verb", ["validate", "test", "predict"])
def test_the_checkpoint_of_a_run_that_diverged(snnprec: Snnprec, here: Path, trained: Path, verb: str) -> None:
    content = torch.load(trained / "checkpoints" / "last.ckpt", weights_only=True)
    content["state_dict"]["net.head.weight"][0, 0] = torch.inf
    torch.save(content, here / "bad.ckpt")
    outcome = snnprec(verb, "bad.ckpt", *QUICK, *(["output=out.npz"] if verb == "predict" else []))
    assert outcome.status == 0
    told = f"{here / 'bad.ckpt'} is of a run that diverged: NaN or Inf in net.head.weight"
    assert f"{told}; its results mean nothing" in outcome.complaint
    outcome = snnprec("fit", "--resume", "bad.ckpt", *QUICK, "trainer.max_epochs=2")
    assert outcome.status == 2
    assert f"{told}; resume from an earlier checkpoint" in outcome.complaint
