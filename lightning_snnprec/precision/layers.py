"""Converted layers: subclasses that a layer's `__class__` is set to, with their engine outside of the module tree.

Swapping the class keeps the module itself: its Parameters, hooks, name, flags and everybody's references to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from lightning_snnprec.precision.engines.protocol import Engine, LayerKey
from lightning_snnprec.precision.norms import NORMS

_ATTRIBUTE = "_snnprec_binding"


@dataclass
class Binding:
    """What a converted layer knows besides its Parameters: its engine and its own name there."""

    engine: Engine
    key: LayerKey


def binding_of(module: nn.Module) -> Binding:
    """The binding of a converted layer.

    Raises:
        KeyError: the module is not converted.
    """
    found: Binding = module.__dict__[_ATTRIBUTE]
    return found


class ConvertedLinear(nn.Linear):
    """`nn.Linear` whose three GEMMs an FP8 engine computes."""

    def forward(self, input: Tensor) -> Tensor:
        """Output `[..., out]` of input `[..., in]`."""
        at = binding_of(self)
        return at.engine.linear(at.key, at.engine.quantize_input(at.key, input), self.weight, self.bias)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        seed(self)


class ConvertedConv1d(nn.Conv1d):
    """Pointwise `nn.Conv1d` computed as a linear layer over its channels."""

    def forward(self, input: Tensor) -> Tensor:
        """Output `[N, out, L]` (or `[out, L]`) of input `[N, in, L]` (or `[in, L]`)."""
        at = binding_of(self)
        x = at.engine.quantize_input(at.key, input.transpose(-1, -2))
        return at.engine.linear(at.key, x, self.weight.squeeze(-1), self.bias).transpose(-1, -2)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        seed(self)


CONVERTED: dict[type[nn.Module], type[nn.Module]] = {nn.Linear: ConvertedLinear, nn.Conv1d: ConvertedConv1d}
"""Exact type -> the class that a layer of it becomes."""

PLAIN: dict[type[nn.Module], type[nn.Module]] = {wide: plain for plain, wide in (CONVERTED | NORMS).items()}


def plain_type(module: nn.Module) -> type[nn.Module]:
    """The user's class of a module, converted or not."""
    return PLAIN.get(type(module), type(module))


def gemm_weight(module: nn.Module) -> Tensor:
    """Weight `[out, in]` of a convertible layer, detached: the Parameter's own memory."""
    weight = module.weight
    assert isinstance(weight, Tensor)
    return weight.detach().flatten(1)


def is_bound(module: nn.Module) -> bool:
    """Whether an engine computes this module."""
    return _ATTRIBUTE in module.__dict__


def bind(module: nn.Module, engine: Engine, key: LayerKey) -> None:
    """Converts one layer, or one norm before a layer, in place."""
    if type(module) in NORMS:
        module.__class__ = NORMS[type(module)]
        return
    engine.add_layer(key, gemm_weight(module))
    module.__dict__[_ATTRIBUTE] = Binding(engine, key)
    module.__class__ = CONVERTED[type(module)]


def unbind(module: nn.Module) -> None:
    """Gives a converted layer its own class back, in place; does nothing to others."""
    if type(module) in PLAIN:
        module.__class__ = PLAIN[type(module)]
    module.__dict__.pop(_ATTRIBUTE, None)


def seed(module: nn.Module) -> None:
    """Tells the engine that a converted layer's weight was replaced from outside."""
    at = binding_of(module)
    at.engine.seed_weight(at.key, gemm_weight(module))
