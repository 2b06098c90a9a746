from __future__ import annotations

import copy
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sklearn.metrics
import torch
from lightning.pytorch import Trainer
from torch import Tensor, nn
from torch.optim import SGD, AdamW
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR
from torch.utils.data import DataLoader, TensorDataset

from lightning_snnprec.data import DigitsDataModule
from lightning_snnprec.models import FCSNN
from lightning_snnprec.training.module import SNNClassifier

QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "num_sanity_val_steps": 0,
}


def _net() -> FCSNN:
    return FCSNN(64, (31,), 10, init_gain=4.0)


def _data(**fields: Any) -> DigitsDataModule:
    return DigitsDataModule(batch_size=100, **fields)


def _logits(net: nn.Module, data: DigitsDataModule, loader: DataLoader[Any]) -> tuple[Tensor, Tensor]:
    net.eval()
    with torch.no_grad():
        batches = [(net(data.on_after_batch_transfer(batch, 0)[0]), batch[1]) for batch in loader]
    return torch.cat([logits for logits, _ in batches]), torch.cat([y for _, y in batches])


def test_it_learns_the_digits_in_bf16(tmp_path: Path) -> None:
    net = FCSNN(64, (64,), 10, init_gain=4.0, detach_reset=True)
    trainer = Trainer(**QUIET, precision="bf16-mixed", max_epochs=12)
    trainer.fit(SNNClassifier(net, 10), DigitsDataModule())
    metrics = trainer.callback_metrics
    assert metrics["val_acc"] > 0.93
    assert metrics["train_acc"] > 0.95
    assert 0.01 < metrics["val_firing_rate"] < 0.9


@pytest.mark.parametrize("stage", ["val", "test"])
def test_logged_values_equal_those_of_scikit_learn_over_all_samples(stage: str) -> None:
    net, data = _net(), _data()
    module = SNNClassifier(net, 10, top_k=3)
    trainer = Trainer(**QUIET)
    run = {"val": trainer.validate, "test": trainer.test}[stage]
    logged = run(module, data, verbose=False)[0]
    logits, y = _logits(net, data, data.val_dataloader() if stage == "val" else data.test_dataloader())
    prob = logits.double().softmax(1).numpy()
    classes = list(range(10))
    assert logged[f"{stage}_loss"] == pytest.approx(sklearn.metrics.log_loss(y, prob, labels=classes), rel=1e-5)
    assert logged[f"{stage}_acc"] == pytest.approx(sklearn.metrics.accuracy_score(y, prob.argmax(1)))
    top_3 = sklearn.metrics.top_k_accuracy_score(y, prob, k=3, labels=classes)
    assert logged[f"{stage}_acc_top3"] == pytest.approx(top_3)


def test_firing_rates_are_logged_per_layer() -> None:
    net, data = FCSNN(64, (31, 17), 10, init_gain=8.0), _data()
    logged = Trainer(**QUIET).validate(SNNClassifier(net, 10), data, verbose=False)[0]
    spikes: dict[str, list[Tensor]] = {"body.spike1": [], "body.spike2": []}
    with torch.no_grad():
        for batch in data.val_dataloader():
            h_TBN, _ = data.on_after_batch_transfer(batch, 0)
            for name, layer in net.body.named_children():
                h_TBN = layer(h_TBN)
                if name.startswith("spike"):
                    spikes[f"body.{name}"].append(h_TBN.flatten())
    for name, outputs in spikes.items():
        assert logged[f"val_firing_rate/{name}"] == pytest.approx(torch.cat(outputs).mean().item(), rel=1e-5)
    overall = torch.cat([torch.cat(outputs) for outputs in spikes.values()]).mean().item()
    assert logged["val_firing_rate"] == pytest.approx(overall, rel=1e-5)
    assert all(len(layer._forward_hooks) == 0 for layer in net.modules())


def test_every_run_counts_anew_also_after_a_failed_one() -> None:
    module, data = SNNClassifier(_net(), 10), _data()
    trainer = Trainer(**QUIET)
    first = trainer.validate(module, data, verbose=False)
    bad = DataLoader(TensorDataset(torch.rand(4, 64), torch.full((4,), 10)), batch_size=2)
    with pytest.raises(ValueError, match=r"needs a sequence|labels must be in"):
        Trainer(**QUIET).validate(module, bad, verbose=False)
    assert all(len(layer._forward_hooks) == 0 for layer in module.modules())
    assert trainer.validate(module, data, verbose=False) == first


def test_training_logs_loss_per_step_and_accuracy_per_epoch() -> None:
    module = SNNClassifier(_net(), 10, optimizer=partial(SGD, lr=0.0))
    data = _data()
    trainer = Trainer(**QUIET, max_epochs=1, limit_val_batches=0)
    trainer.fit(module, data)
    logits, y = _logits(module.net, data, data.train_dataloader())
    expected = (logits.argmax(1) == y).float().mean()
    assert trainer.callback_metrics["train_acc"] == pytest.approx(expected.item(), rel=1e-6)
    assert set(trainer.callback_metrics) == {"train_acc", "train_loss"}


def test_predictions_are_probabilities_in_the_order_of_the_samples() -> None:
    net, data = _net(), _data()
    batches = Trainer(**QUIET).predict(SNNClassifier(net, 10), data)
    assert batches is not None
    prob = torch.cat([batch["prob"] for batch in batches])
    logits, _ = _logits(net, data, data.test_dataloader())
    torch.testing.assert_close(prob, logits.softmax(1))
    assert torch.equal(torch.cat([batch["pred"] for batch in batches]), logits.argmax(1))
    module = SNNClassifier(net, 10)
    assert module.predict_step(torch.rand(3, 0, 64), 0)["prob"].shape == (0, 10)


def test_predictions_are_fp32_under_autocast() -> None:
    batches = Trainer(**QUIET, precision="bf16-mixed").predict(SNNClassifier(_net(), 10), _data())
    assert batches is not None
    assert batches[0]["prob"].dtype == torch.float32
    torch.testing.assert_close(batches[0]["prob"].sum(1), torch.ones(len(batches[0]["prob"])))


def test_a_checkpoint_holds_plain_values_and_resumes(tmp_path: Path) -> None:
    module, data = SNNClassifier(_net(), 10, scheduler=partial(StepLR, step_size=1), top_k=2), _data()
    options = {**QUIET, "limit_train_batches": 3, "limit_val_batches": 1}
    trainer = Trainer(**options, max_epochs=1)
    trainer.fit(module, data)
    path = tmp_path / "run.ckpt"
    trainer.save_checkpoint(path)
    saved = torch.load(path, weights_only=True)
    assert saved["hyper_parameters"] == {"num_classes": 10, "scheduler_interval": "epoch", "top_k": 2}
    assert set(saved["state_dict"]) == {f"net.{name}" for name in module.net.state_dict()}

    loaded = SNNClassifier.load_from_checkpoint(path, net=_net())
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), module.parameters(), strict=True))
    resumed = Trainer(**options, max_epochs=2)
    resumed.fit(SNNClassifier(_net(), 10, scheduler=partial(StepLR, step_size=1), top_k=2), data, ckpt_path=path)
    assert resumed.global_step == 6


@pytest.mark.parametrize(("interval", "steps"), [("epoch", 2), ("step", 6)])
def test_the_scheduler_steps_at_its_interval(interval: Any, steps: int) -> None:
    module = SNNClassifier(
        _net(), 10, partial(SGD, lr=1.0), partial(StepLR, step_size=1, gamma=0.5), scheduler_interval=interval
    )
    trainer = Trainer(**QUIET, max_epochs=2, limit_train_batches=3, limit_val_batches=0)
    trainer.fit(module, _data())
    assert trainer.optimizers[0].param_groups[0]["lr"] == 0.5**steps


def test_a_plateau_scheduler_follows_the_validation_loss() -> None:
    module = SNNClassifier(_net(), 10, partial(SGD, lr=0.0), partial(ReduceLROnPlateau, patience=0))
    trainer = Trainer(**QUIET, max_epochs=2, limit_train_batches=1)
    trainer.fit(module, _data())
    scheduler = trainer.lr_scheduler_configs[0].scheduler
    assert isinstance(scheduler, ReduceLROnPlateau)
    assert scheduler.best == pytest.approx(trainer.callback_metrics["val_loss"].item())


def test_the_optimizer_holds_the_networks_parameters_at_that_time() -> None:
    module = SNNClassifier(_net(), 10)
    module.net = _net()
    optimizer = module.configure_optimizers()
    assert isinstance(optimizer, AdamW)
    held = [id(parameter) for group in optimizer.param_groups for parameter in group["params"]]
    assert held == [id(parameter) for parameter in module.net.parameters()]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_classes": 1}, "num_classes=1: needs an int >= 2"),
        ({"optimizer": SGD([nn.Parameter(torch.zeros(1))], lr=0.1)}, "optimizer=SGD: needs a callable that makes it"),
        ({"scheduler": "cosine"}, "scheduler=str: needs a callable that makes it"),
        ({"scheduler_interval": "steps"}, "scheduler_interval='steps': must be one of 'epoch', 'step'"),
        ({"top_k": 1}, "top_k=1: needs an int >= 2"),
        ({"top_k": 11}, "top_k=11: there are num_classes=10 classes alone"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"SNNClassifier: {message}"):
        SNNClassifier(**{"net": _net(), "num_classes": 10, **arguments})


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (torch.rand(4, 3, 64), r"a batch must be a pair of tensors \(x, y\)"),
        ((torch.rand(4, 3, 64), torch.tensor([0, 1, 10])), r"labels must be in 0..9 .* found 0 to 10"),
        ((torch.rand(4, 0, 64), torch.empty(0, dtype=torch.long)), r"no samples \(B = 0\)"),
        ((torch.rand(3, 4, 64), torch.tensor([0, 1, 2])), r"3 labels .* but the network gave \[4, 10\]. .* time first"),
    ],
)
@pytest.mark.parametrize("batch_idx", [0, 3])
def test_bad_batches_are_refused_in_training_and_evaluation(batch: Any, message: str, batch_idx: int) -> None:
    module = SNNClassifier(_net(), 10)
    for step in (module.training_step, module.validation_step, module.test_step):
        with pytest.raises(ValueError, match=message):
            step(batch, batch_idx)


def test_on_an_accelerator_labels_are_read_back_once_per_epoch() -> None:
    # A meta tensor has no values: reading one back to the host raises.
    module = SNNClassifier(_net(), 10).to("meta")
    batch = (torch.empty(4, 3, 64, device="meta"), torch.empty(3, dtype=torch.long, device="meta"))
    loss, logits_BC, _ = module._loss(batch, batch_idx=1)
    assert loss.shape == ()
    module.val_accuracy.update(logits_BC, batch[1])
    with pytest.raises((NotImplementedError, RuntimeError), match="meta"):
        module._loss(batch, batch_idx=0)


def test_the_loss_is_fp32_on_the_networks_own_precision() -> None:
    class Half(nn.Module):
        def forward(self, x_TBF: Tensor) -> Tensor:
            return x_TBF.mean(0).half()

    x_TBF, y_B = torch.rand(4, 5, 10), torch.randint(10, (5,))
    loss, _, _ = SNNClassifier(Half(), 10)._loss((x_TBF, y_B), 0)
    assert loss.dtype == torch.float32
    expected = -x_TBF.mean(0).half().double().log_softmax(1)[torch.arange(5), y_B].mean()
    torch.testing.assert_close(loss.double(), expected, rtol=1e-6, atol=1e-6)


def test_a_network_without_our_neurons_logs_no_firing_rate() -> None:
    class Rate(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(64, 10)

        def forward(self, x_TBF: Tensor) -> Tensor:
            out: Tensor = self.head(x_TBF.mean(0))
            return out

    logged = Trainer(**QUIET).validate(SNNClassifier(Rate(), 10), _data(), verbose=False)[0]
    assert set(logged) == {"val_acc", "val_loss"}


def test_copy_and_pickle_after_training_and_validation() -> None:
    module, data = SNNClassifier(_net(), 10, partial(AdamW, lr=1e-3)), _data()
    Trainer(**QUIET, max_epochs=1, limit_train_batches=2, limit_val_batches=1).fit(module, data)
    x_TBF = torch.rand(3, 2, 64)
    net = pickle.loads(pickle.dumps(module.net))
    assert torch.equal(net(x_TBF), module.net(x_TBF))
    twin = copy.deepcopy(module)
    assert torch.equal(twin(x_TBF), module(x_TBF))
    assert twin.net.head.weight.data_ptr() != module.net.head.weight.data_ptr()


# Dynamo looks at .grad of a non-leaf tensor where a compiled step is traced in pieces; it hides the warning itself.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf Tensor:UserWarning")
@pytest.mark.parametrize("compiled", ["net", "net in place", "module"])
def test_compiled_networks_log_the_same_numbers(compiled: str, seed: int) -> None:
    def run(how: str) -> list[Any]:
        torch.manual_seed(seed)
        net, data = _net(), _data()
        if how == "net in place":
            net.compile(backend="eager")
        module = SNNClassifier(torch.compile(net, backend="eager") if how == "net" else net, 10)
        fitted: Any = torch.compile(module, backend="eager") if how == "module" else module
        trainer = Trainer(**QUIET, max_epochs=1, limit_train_batches=3)
        # Predicting first compiles a graph without hooks, which validation must not use.
        trainer.predict(fitted, data)
        trainer.fit(fitted, data)
        logged = {name: value.item() for name, value in trainer.callback_metrics.items()}
        return [logged, trainer.test(fitted, data, verbose=False)]

    torch._dynamo.reset()
    assert run(compiled) == run("eager")
    torch._dynamo.reset()


@pytest.mark.parametrize("net", [None, 3, FCSNN])
def test_a_net_that_is_no_module_is_refused_with_the_other_faults(net: Any) -> None:
    with pytest.raises(ValueError, match=r"(?s)2 arguments are wrong:.*net=.*needs the network.*num_classes=1"):
        SNNClassifier(net, 1)
