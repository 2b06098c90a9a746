"""Conversion in place, all or nothing, and the way back."""

from __future__ import annotations

from torch import nn

from lightning_snnprec.precision.engines.protocol import Engine
from lightning_snnprec.precision.inputs import remove_input_casts
from lightning_snnprec.precision.layers import PLAIN, bind, binding_of, is_bound, unbind
from lightning_snnprec.precision.neuron_policy import apply_neuron_policy
from lightning_snnprec.precision.plan import ConversionPlan


def convert(model: nn.Module, plan: ConversionPlan, engine: Engine) -> None:
    """Converts the modules that a plan names, in place, the root included.

    Raises:
        Exception: whatever an engine raises for a layer; the model is then as it was before the call.
    """
    modules = dict(model.named_modules())
    done: list[nn.Module] = []
    try:
        for name in plan.converted:
            bind(modules[name], engine, name)
            done.append(modules[name])
    except BaseException:
        for module in done:
            unbind(module)
        raise


def converted_layers(model: nn.Module) -> dict[str, nn.Module]:
    """The converted layers of a model by name."""
    return {name: module for name, module in model.named_modules() if type(module) in PLAIN}


def engine_of(model: nn.Module) -> Engine | None:
    """The engine that a model's converted layers share, or None when no layer is converted.

    Raises:
        RuntimeError: layers were converted apart from each other and have different engines.
    """
    bound = [layer for layer in converted_layers(model).values() if is_bound(layer)]
    engines = {id(engine): engine for layer in bound for engine in [binding_of(layer).engine]}
    if len(engines) > 1:
        raise RuntimeError(
            f"the model's layers belong to {len(engines)} FP8 engines, since parts of it were prepared separately; "
            "call lightning_snnprec.to_plain(model) and prepare the whole model"
        )
    return next(iter(engines.values()), None)


def to_plain(model: nn.Module) -> nn.Module:
    """Gives every module of a prepared model its own class back, in place, on any machine.

    Parameters, their values and the `state_dict` stay as they are; engine state is dropped. A neuron policy that
    preparation set is taken off too.

    Returns:
        The model itself.
    """
    for module in model.modules():
        unbind(module)
    remove_input_casts(model)
    apply_neuron_policy(model, None)
    return model
