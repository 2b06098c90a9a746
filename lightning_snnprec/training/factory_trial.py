"""Trying out the optimizer and scheduler factories of a recipe, which otherwise fail only once training starts."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import hydra.utils
import torch
from omegaconf import DictConfig
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LRScheduler


def failed_trials(model: DictConfig) -> Iterator[tuple[str, Exception]]:
    """Calls each `_partial_` optimizer or scheduler of a recipe's model on a parameter of its own.

    Args:
        model: the `model` part of a recipe; its direct children are looked at.

    Yields:
        Key and exception of each whose settings its class refuses, such as a negative learning rate.
    """
    parameter = torch.nn.Parameter(torch.zeros(1))
    factories = {
        str(key): node for key, node in model.items() if isinstance(node, DictConfig) and node.get("_partial_")
    }
    for kind, argument in ((Optimizer, [parameter]), (LRScheduler, SGD([parameter], lr=0.1))):
        for key, node in factories.items():
            target = hydra.utils.get_object(node["_target_"])
            if not inspect.isclass(target) or not issubclass(target, kind):
                continue
            try:
                hydra.utils.instantiate(node, _convert_="all")(argument)
            except (TypeError, ValueError) as error:
                yield key, error
