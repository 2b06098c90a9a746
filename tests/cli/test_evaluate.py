"""`snnprec validate`, `test` and `predict`, against the same network run by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lightning_snnprec.data import DigitsDataModule, direct_coding
from lightning_snnprec.models import FCSNN
from tests.cli.conftest import Snnprec

# What `lightning_snnprec.cli.quiet` keeps from the user: pytest's own filter comes first.
pytestmark = pytest.mark.filterwarnings("ignore:The dirpath has changed from:UserWarning")
QUIET = ("trainer.enable_progress_bar=false", "trainer.enable_model_summary=false", "precision=fp32")
# FP32 sums in another order: batches of 64 there, all samples at once here.
TOLERANCE = 1e-5


def by_hand(run: Path, x_BF: Tensor) -> Tensor:
    content = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    net = FCSNN(64, [256, 128], 10)
    net.load_state_dict({name.removeprefix("net."): value for name, value in content.items()})
    with torch.no_grad():
        logits: Tensor = net.eval()(direct_coding(x_BF, 4))
    return logits


def digits(part: str) -> tuple[Tensor, Tensor]:
    data = DigitsDataModule()
    data.setup()
    x_NF, y_N = zip(*(data.val_dataloader() if part == "val" else data.test_dataloader()), strict=True)
    return torch.cat(x_NF), torch.cat(y_N)


def files(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.mark.parametrize(("verb", "part"), [("validate", "val"), ("test", "test")])
def test_metrics_are_those_of_the_checkpoint(snnprec: Snnprec, here: Path, trained: Path, verb: str, part: str) -> None:
    before = files(trained)
    outcome = snnprec(verb, str(trained), *QUIET, "trainer.limit_val_batches=null")
    assert outcome.status == 0
    x_NF, y_N = digits(part)
    logits_NC = by_hand(trained, x_NF)
    accuracy = (logits_NC.argmax(1) == y_N).double().mean().item()
    assert float(outcome.row(f"{part}_acc")) == pytest.approx(accuracy, abs=5e-5)
    assert float(outcome.row(f"{part}_loss")) == pytest.approx(F.cross_entropy(logits_NC, y_N).item(), abs=1e-4)
    assert files(trained) == before
    assert list(here.iterdir()) == []


def test_predictions_are_those_of_the_checkpoint(snnprec: Snnprec, here: Path, trained: Path) -> None:
    outcome = snnprec("predict", str(trained / "checkpoints"), *QUIET, "output=out.npz")
    assert outcome.status == 0
    x_NF, _ = digits("test")
    prob_NC = F.softmax(by_hand(trained, x_NF), dim=1)
    with np.load("out.npz") as written:
        assert sorted(written.files) == ["pred", "prob"]
        torch.testing.assert_close(torch.from_numpy(written["prob"]), prob_NC, rtol=0, atol=TOLERANCE)
        assert np.array_equal(written["pred"], written["prob"].argmax(axis=1))
    assert outcome.row("predictions:") == "out.npz (prob [179, 10], pred [179])"
    assert [path.name for path in here.iterdir()] == ["out.npz"]


def test_ones_own_samples_are_predicted_in_their_order(snnprec: Snnprec, trained: Path) -> None:
    x_NF = torch.rand(67, 64)
    np.savez("mine.npz", x=x_NF.numpy())
    outcome = snnprec("predict", str(trained), *QUIET, "input=mine.npz", "output=out.npz", "data.batch_size=5")
    assert outcome.status == 0
    with np.load("out.npz") as written:
        prob_NC = torch.from_numpy(written["prob"])
    torch.testing.assert_close(prob_NC, F.softmax(by_hand(trained, x_NF), dim=1), rtol=0, atol=TOLERANCE)


def test_a_checkpoint_alone_takes_the_recipe_of_the_command_line(snnprec: Snnprec, here: Path, trained: Path) -> None:
    (here / "alone.ckpt").write_bytes((trained / "checkpoints" / "last.ckpt").read_bytes())
    outcome = snnprec("test", "alone.ckpt", *QUIET)
    assert outcome.status == 0
    assert "no stored recipe lies beside it" in outcome.out
    outcome = snnprec("test", "alone.ckpt", *QUIET, "model.net.neuron=plif")
    assert outcome.status == 2
    assert "missing there: net.body.spike1.w, net.body.spike2.w" in outcome.complaint


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        ("input=gone.npz", "input=gone.npz: no such file"),
        ("output=out.txt", "output=out.txt must end in .npz"),
        ("output=gone/out.npz", "cannot be written: there is no folder"),
    ],
)
def test_a_faulty_request_is_told_and_leaves_the_former_predictions(
    snnprec: Snnprec, here: Path, trained: Path, request_: str, told: str
) -> None:
    np.savez("out.npz", prob=np.zeros(1))
    before = files(here)
    former = () if request_.startswith("output") else ("output=out.npz",)
    outcome = snnprec("predict", str(trained), *QUIET, *former, request_)
    assert outcome.status == 2
    assert told in outcome.complaint
    assert files(here) == before


def test_a_failure_while_writing_leaves_the_former_predictions(
    snnprec: Snnprec, here: Path, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez("out.npz", prob=np.arange(3))

    def full(file: object, **arrays: object) -> None:
        file.write(b"half")  # type: ignore[attr-defined]
        raise OSError("no space left")

    monkeypatch.setattr(np, "savez", full)
    outcome = snnprec("predict", str(trained), *QUIET, "output=out.npz")
    assert outcome.status == 2
    assert f"output={here / 'out.npz'} cannot be written: no space left" in outcome.complaint
    assert [path.name for path in here.iterdir()] == ["out.npz"]
    with np.load("out.npz") as written:
        assert written["prob"].tolist() == [0, 1, 2]


def test_a_recipe_of_several_devices_cannot_predict(snnprec: Snnprec, trained: Path) -> None:
    outcome = snnprec("predict", str(trained), *QUIET, "trainer.devices=2", "trainer.strategy=snn_ddp")
    assert outcome.status == 2
    assert "predict runs on one device, but this recipe asks for 2; add trainer.devices=1" in outcome.complaint
