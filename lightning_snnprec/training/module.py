"""`SNNClassifier`: the LightningModule that trains a spiking network to classify."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal, TypeAlias, get_args

import torch
import torch.nn.functional as F
from lightning.pytorch import LightningModule
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer
from torch.optim.lr_scheduler import LRScheduler
from torchmetrics import Metric, MetricCollection
from torchmetrics.classification import MulticlassAccuracy
from typing_extensions import override

from lightning_snnprec.arguments import choice_fault, int_fault, raise_faults
from lightning_snnprec.telemetry import FiringRate
from lightning_snnprec.training.batch import check_labels, check_logits, inputs_of, labelled_pair

OptimizerFactory: TypeAlias = Callable[[Iterable[nn.Parameter]], Optimizer]
SchedulerFactory: TypeAlias = Callable[[Optimizer], LRScheduler]
Interval: TypeAlias = Literal["epoch", "step"]


def default_optimizer(params: Iterable[nn.Parameter]) -> Optimizer:
    """AdamW with a learning rate of 5e-3, which suits FCSNN on the digits; other settings are torch's."""
    return AdamW(params, lr=5e-3)


class SNNClassifier(LightningModule):
    """Trains `net` on batches `(x, y)`: x whatever `net` takes (`[T, B, ...]`), y int `[B]` in 0..num_classes-1.

    Cross entropy in fp32, on logits `[B, num_classes]`. Logs `train_loss` at each step and `train_acc` at each epoch;
    `val_loss`, `val_acc`, `val_firing_rate` and `val_firing_rate/<layer>` at each validation; the same under `test_`.
    `<layer>` is the name of a neuron inside `net`. The labels' range is checked on every CPU batch, and on an
    accelerator on the first batch of each epoch alone, because the host has to wait for the answer.

    A checkpoint holds plain values only. `net` is not among the hyperparameters:
    `SNNClassifier.load_from_checkpoint(path, net=net)`.

    Args:
        net: the network.
        num_classes: C.
        optimizer: makes an optimizer of the network's parameters; it is called once the network has been
            prepared. None is `default_optimizer`.
        scheduler: makes a learning-rate scheduler of the optimizer; None keeps the rate. A
            `ReduceLROnPlateau` follows `val_loss`.
        scheduler_interval: step the scheduler after each "epoch" or optimizer "step".
        top_k: also log `train_acc_top<k>` and so on: the share of samples whose class is among the k likeliest.

    Raises:
        ValueError: bad arguments, all listed; in a step a batch that is no pair, has no samples, has labels that
            are not integers in range, or doesn't fit the network's output.
    """

    def __init__(
        self,
        net: nn.Module,
        num_classes: int,
        optimizer: OptimizerFactory | None = None,
        scheduler: SchedulerFactory | None = None,
        scheduler_interval: Interval = "epoch",
        top_k: int | None = None,
    ) -> None:
        super().__init__()
        raise_faults(
            type(self).__name__,
            [
                _net_fault(net),
                int_fault("num_classes", num_classes, 2),
                _factory_fault("optimizer", optimizer),
                _factory_fault("scheduler", scheduler),
                choice_fault("scheduler_interval", scheduler_interval, get_args(Interval)),
                _top_k_fault(top_k, num_classes),
            ],
        )
        self.save_hyperparameters("num_classes", "scheduler_interval", "top_k")
        self.net = net
        self.num_classes = num_classes
        self._make_optimizer = default_optimizer if optimizer is None else optimizer
        self._make_scheduler = scheduler
        self._interval = scheduler_interval
        self.train_accuracy = _accuracy("train_", num_classes, top_k)
        self.val_accuracy = _accuracy("val_", num_classes, top_k)
        self.test_accuracy = _accuracy("test_", num_classes, top_k)
        self.val_firing_rate = FiringRate(net)
        self.test_firing_rate = FiringRate(net)

    # A compiled module cannot trace Lightning 2.6.6's `log` under torch 2.12 and 2.13 (Lightning issue 21836).
    log = torch.compiler.disable(LightningModule.log)  # type: ignore[no-untyped-call]

    @override
    def forward(self, x: Tensor) -> Tensor:
        """Logits `[B, C]` of the network, as it returns them."""
        logits: Tensor = self.net(x)
        return logits

    @override
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Loss of one batch."""
        loss, logits_BC, y_B = self._loss(batch, batch_idx)
        self.train_accuracy.update(logits_BC.detach(), y_B)
        self.log("train_loss", loss, prog_bar=True, batch_size=len(y_B))
        self.log_dict(self.train_accuracy, on_step=False, on_epoch=True, batch_size=len(y_B))
        return loss

    @override
    def on_validation_epoch_start(self) -> None:
        """Forgets what an interrupted validation has counted."""
        self.val_firing_rate.reset()

    @override
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Loss, accuracy and spikes of one batch."""
        self._evaluate("val", batch, batch_idx, self.val_accuracy, self.val_firing_rate)

    @override
    def on_validation_epoch_end(self) -> None:
        """Logs the firing rates."""
        self._log_rates("val_firing_rate", self.val_firing_rate)

    @override
    def on_test_epoch_start(self) -> None:
        """Forgets what an interrupted test has counted."""
        self.test_firing_rate.reset()

    @override
    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Loss, accuracy and spikes of one batch."""
        self._evaluate("test", batch, batch_idx, self.test_accuracy, self.test_firing_rate)

    @override
    def on_test_epoch_end(self) -> None:
        """Logs the firing rates."""
        self._log_rates("test_firing_rate", self.test_firing_rate)

    @override
    def predict_step(self, batch: Any, batch_idx: int) -> dict[str, Tensor]:
        """Class probabilities and the likeliest class of one batch, `(x, y)` or x alone; y is not read.

        Returns:
            `{"prob": [B, C] in fp32, "pred": [B] int64}`, on the device of the network.
        """
        logits_BC = self(inputs_of(batch))
        prob_BC = F.softmax(logits_BC, dim=1, dtype=torch.float32)
        return {"prob": prob_BC, "pred": prob_BC.argmax(dim=1)}

    @override
    def configure_optimizers(self) -> OptimizerLRScheduler:
        """The optimizer of the network's parameters, and its scheduler."""
        optimizer = self._make_optimizer(self.net.parameters())
        if self._make_scheduler is None:
            return optimizer
        return {
            "optimizer": optimizer,
            "lr_scheduler": {
                "scheduler": self._make_scheduler(optimizer),
                "interval": self._interval,
                "monitor": "val_loss",
            },
        }

    def _loss(self, batch: Any, batch_idx: int) -> tuple[Tensor, Tensor, Tensor]:
        x, y_B = labelled_pair(batch)
        if batch_idx == 0 or y_B.device.type == "cpu":
            check_labels(y_B, self.num_classes)
        logits_BC = self(x)
        check_logits(logits_BC, y_B, self.num_classes)
        logits_BC = logits_BC.to(torch.promote_types(logits_BC.dtype, torch.float32))
        return F.cross_entropy(logits_BC, y_B), logits_BC, y_B

    # Counting spikes needs an eager network (see FiringRate), also where the whole module is compiled.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _evaluate(
        self, stage: str, batch: Any, batch_idx: int, accuracy: MetricCollection, firing_rate: FiringRate
    ) -> None:
        with firing_rate.watch(self.net):
            loss, logits_BC, y_B = self._loss(batch, batch_idx)
        accuracy.update(logits_BC, y_B)
        self.log(f"{stage}_loss", loss, prog_bar=True, batch_size=len(y_B), sync_dist=True)
        self.log_dict(accuracy, prog_bar=True, batch_size=len(y_B))

    def _log_rates(self, name: str, firing_rate: FiringRate) -> None:
        if not firing_rate.layers:
            return
        rates = firing_rate.compute()
        self.log(name, rates.overall, prog_bar=True, sync_dist=True)
        self.log_dict({f"{name}/{layer}": rate for layer, rate in rates.layers.items()}, sync_dist=True)


def _accuracy(prefix: str, num_classes: int, top_k: int | None) -> MetricCollection:
    # validate_args would read the labels back from the device at every batch.
    shared: dict[str, Any] = {"num_classes": num_classes, "average": "micro", "validate_args": False}
    metrics: dict[str, Metric | MetricCollection] = {"acc": MulticlassAccuracy(**shared)}
    if top_k is not None:
        metrics[f"acc_top{top_k}"] = MulticlassAccuracy(**shared, top_k=top_k)
    return MetricCollection(metrics, prefix=prefix, compute_groups=False)


def _net_fault(net: object) -> str | None:
    if isinstance(net, nn.Module):
        return None
    return f"net={net!r}: needs the network, an nn.Module such as FCSNN(64, [256, 128], 10)."


def _factory_fault(name: str, factory: object) -> str | None:
    if factory is None or callable(factory):
        return None
    return (
        f"{name}={type(factory).__name__}: needs a callable that makes it, such as functools.partial(AdamW, "
        "lr=1e-3): it has to be made after the network was prepared."
    )


def _top_k_fault(top_k: object, num_classes: object) -> str | None:
    if top_k is None or not isinstance(num_classes, int):
        return None
    fault = int_fault("top_k", top_k, 2)
    if fault is None and isinstance(top_k, int) and top_k > num_classes:
        return f"top_k={top_k}: there are num_classes={num_classes} classes alone."
    return fault
