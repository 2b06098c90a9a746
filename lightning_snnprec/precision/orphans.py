"""Optimizers that hold parameters which their model does not have: they would train nothing, silently."""

from __future__ import annotations

from torch import nn
from torch.optim import Optimizer


def check_optimizer(model: nn.Module, optimizer: Optimizer) -> None:
    """Checks that every parameter of an optimizer belongs to a model.

    Raises:
        RuntimeError: one does not; it is named by parameter group, position and shape.
    """
    owned = {id(parameter) for parameter in model.parameters()}
    orphans = [
        f"group {index}, parameter {position} of shape {tuple(parameter.shape)}"
        for index, group in enumerate(optimizer.param_groups)
        for position, parameter in enumerate(group["params"])
        if id(parameter) not in owned
    ]
    if orphans:
        more = f" and {len(orphans) - 3} more" if len(orphans) > 3 else ""
        raise RuntimeError(
            f"{type(optimizer).__name__} holds parameters that the model does not have, so stepping it would not "
            "train them: "
            f"{'; '.join(orphans[:3])}{more}. Make the optimizer after the model is prepared and its layers are final "
            "(in Lightning: in configure_optimizers)"
        )
