"""From a neuron's name in a recipe to a factory that makes one per layer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias, cast

from torch import nn
from typing_extensions import TypedDict, Unpack

from lightning_snnprec.arguments import choice_fault, raise_faults
from lightning_snnprec.neurons import BaseNode, IFNode, LIFNode, ParametricLIFNode
from lightning_snnprec.neurons.surrogate import from_name

NeuronFactory: TypeAlias = Callable[[], nn.Module]

NEURONS: Mapping[str, type[BaseNode]] = MappingProxyType({"if": IFNode, "lif": LIFNode, "plif": ParametricLIFNode})


class NeuronOptions(TypedDict, total=False):
    """What a named neuron can be given; whatever is left out has the default of the neuron's class.

    `tau` and `decay_input` belong to "lif" and "plif"; for "plif" `tau` is the initial value (`init_tau`).
    `surrogate` is a name of `lightning_snnprec.neurons.surrogate.SURROGATES`, `alpha` its sharpness.
    """

    tau: float
    decay_input: bool
    v_threshold: float
    v_reset: float | None
    surrogate: str
    alpha: float | None
    detach_reset: bool
    store_v_seq: bool
    stateful: bool


def neuron_factory(neuron: str | NeuronFactory, **options: Unpack[NeuronOptions]) -> NeuronFactory:
    """Gives a callable that makes a fresh multi-step neuron at each call.

    Args:
        neuron: "if", "lif" or "plif", or a factory of your own (a class or a callable without arguments).
        **options: see `NeuronOptions`; only for a name.

    Returns:
        A factory, picklable when made from a name. One neuron was made already, to check the options.

    Raises:
        ValueError: an unknown name or option, a bad value, options for a factory, a module instance in place of
            a factory, or a factory that makes single-step neurons or no module at all.
    """
    if isinstance(neuron, str):
        raise_faults("neuron", [choice_fault("neuron", neuron, NEURONS), *_option_faults(neuron, options)])
        made: NeuronFactory = functools.partial(_make, neuron, options)
    else:
        raise_faults("neuron", [_factory_fault(neuron, options)])
        made = neuron
    raise_faults("neuron", [_node_fault(made())])
    return made


def _make(neuron: str, options: NeuronOptions) -> nn.Module:
    keywords = cast(dict[str, Any], dict(options))
    surrogate = from_name(keywords.pop("surrogate", "sigmoid"), keywords.pop("alpha", None))
    if neuron == "plif" and "tau" in keywords:
        keywords["init_tau"] = keywords.pop("tau")
    return NEURONS[neuron](**keywords, surrogate_function=surrogate, step_mode="m")


def _option_faults(neuron: str, options: NeuronOptions) -> list[str | None]:
    known = NeuronOptions.__annotations__
    faults = [choice_fault("option", name, known) for name in options]
    if neuron == "if":
        faults += [
            f"{name}={options[name]!r}: an IF neuron has no leak; leave it out, or use neuron='lif'."
            for name in ("tau", "decay_input")
            if name in options
        ]
    return faults


def _factory_fault(neuron: object, options: NeuronOptions) -> str | None:
    if isinstance(neuron, nn.Module):
        kind = type(neuron).__name__
        return f"{kind} instance: needs a factory, since every layer has a neuron of its own: lambda: {kind}(...)."
    if not callable(neuron):
        return f"neuron={neuron!r}: needs one of {', '.join(map(repr, NEURONS))}, or a factory."
    if options:
        return f"{', '.join(options)}: options go with a neuron's name; a factory sets its own."
    return None


def _node_fault(node: object) -> str | None:
    if not isinstance(node, nn.Module):
        return f"the factory made {type(node).__name__}, not a torch.nn.Module."
    step_mode = getattr(node, "step_mode", "m")
    if step_mode != "m":
        return f"the factory made a {type(node).__name__} with step_mode={step_mode!r}; these models need 'm'."
    return None
