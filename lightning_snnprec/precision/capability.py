"""What a machine can run: facts about it, and the reasons why it cannot run a configuration."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from lightning_snnprec.precision.engines.registry import ENGINES
from lightning_snnprec.precision.engines.traits import (
    RECIPES,
    TRAITS,
    EngineTraits,
    RecipeNeeds,
    resolve_recipe,
)
from lightning_snnprec.precision.neuron_policy import neuron_policy, policy_obstacle

if TYPE_CHECKING:
    from lightning_snnprec.precision.config import PrecisionConfig

_PROFILES: dict[str, tuple[str, tuple[int, int] | None]] = {
    "cpu": ("CPU", None),
    "a100": ("NVIDIA A100", (8, 0)),
    "l40s": ("NVIDIA L40S", (8, 9)),
    "h100": ("NVIDIA H100", (9, 0)),
    "h200": ("NVIDIA H200", (9, 0)),
    "b200": ("NVIDIA B200", (10, 0)),
    "rtx5090": ("NVIDIA GeForce RTX 5090", (12, 0)),
}
_LIBRARIES = ("triton", "transformer_engine")


@dataclass(frozen=True)
class Facts:
    """Facts of one device and the software beside it.

    Args:
        device: torch device string, or the name of a profile.
        device_name: the device's own name.
        capability: compute capability of a CUDA device, None for any other.
        cuda: version of CUDA that torch was built with, None for a CPU build.
        libraries: installed version, or None, of each optional library.
        here: False for a profile: the device is described, not probed, and `cuda` and `libraries` are unknown.
        problem: why the device itself cannot be used, or None.
    """

    device: str
    device_name: str
    capability: tuple[int, int] | None
    cuda: str | None
    libraries: dict[str, str | None]
    here: bool = True
    problem: str | None = None

    def lines(self) -> list[tuple[str, str]]:
        """The facts as (what, value) rows for printing."""
        shown = [("device", f"{self.device} ({self.device_name})")]
        if self.capability is not None:
            shown.append(("compute capability", "{}.{}".format(*self.capability)))
        if not self.here:
            return [*shown, ("software", "not probed: this is a profile of a device")]
        shown += [
            ("python", platform.python_version()),
            ("torch", str(torch.__version__)),
            ("CUDA of torch", self.cuda or "none"),
        ]
        return shown + [(name, version or "not installed") for name, version in self.libraries.items()]


def probe(device: torch.device | str | None = None) -> Facts:
    """Facts of a device of this machine.

    Args:
        device: torch device; None is the first CUDA device, or the CPU when there is none.
    """
    chosen = torch.device(device if device is not None else "cuda" if torch.cuda.is_available() else "cpu")
    name, capability, problem = platform.processor() or platform.machine(), None, None
    if chosen.type != "cpu":
        name, problem = "no such device", _device_problem(chosen)
        if problem is None and chosen.type == "cuda":
            name, capability = torch.cuda.get_device_name(chosen), torch.cuda.get_device_capability(chosen)
    return Facts(
        device=str(chosen),
        device_name=name,
        capability=capability,
        cuda=torch.version.cuda,
        libraries={library: _version(library) for library in _LIBRARIES},
        problem=problem,
    )


def device_profile(name: str) -> Facts:
    """Facts of a device that need not be here, for planning.

    Raises:
        ValueError: unknown name; the known ones are listed.
    """
    key = name.lower().replace(" ", "").replace("-", "")
    if key not in _PROFILES:
        raise ValueError(
            f"device={name!r} is not a known profile; use one of {', '.join(_PROFILES)}, or null for this machine"
        )
    device_name, capability = _PROFILES[key]
    return Facts(key, device_name, capability, None, dict.fromkeys(_LIBRARIES), here=False)


def refusals(config: PrecisionConfig, facts: Facts) -> tuple[str, ...]:
    """Every reason why a device cannot run a configuration, a sentence each; empty when it can.

    For a profile (`facts.here` is False) only the device is judged, since its software is unknown.
    """
    reasons = [facts.problem] if facts.problem else []
    obstacle = policy_obstacle(neuron_policy(config))
    if obstacle:
        reasons.append(obstacle)
    if config.mode == "fp8":
        reasons += _fp8_refusals(config, facts)
    return tuple(reasons)


def _fp8_refusals(config: PrecisionConfig, facts: Facts) -> list[str]:
    engine = config.fp8_engine
    traits = TRAITS[engine]
    reasons = []
    if engine not in ENGINES:
        have = f"it has {', '.join(map(repr, ENGINES))}" if ENGINES else "it has no FP8 engine yet"
        reasons.append(
            f"fp8_engine={engine!r} is not part of this version of lightning_snnprec ({have}); "
            "use mode='bf16', 'fp16' or 'fp32'"
        )
    if facts.here and traits.library is not None:
        reasons += _library_refusals(engine, traits, facts)
    if not traits.simulated:
        recipe = resolve_recipe(engine, config.fp8_recipe, facts.capability)
        reasons += _hardware_refusals(engine, recipe, RECIPES[recipe], facts)
    return reasons


def _library_refusals(engine: str, traits: EngineTraits, facts: Facts) -> list[str]:
    assert traits.library is not None
    assert traits.least is not None
    found = facts.libraries.get(traits.library)
    install = f"pip install 'lightning-snnprec[{traits.extra}]'"
    if found is None:
        return [f"fp8_engine={engine!r} needs {traits.library} >= {traits.least}, which is not installed; {install}"]
    if _numbers(found) < _numbers(traits.least):
        return [f"fp8_engine={engine!r} needs {traits.library} >= {traits.least}; installed is {found}; {install}"]
    return []


def _hardware_refusals(engine: str, recipe: str, needs: RecipeNeeds, facts: Facts) -> list[str]:
    asked = f"fp8_engine={engine!r} with fp8_recipe={recipe!r}"
    wanted = "{}.{}".format(*needs.capability)
    if needs.below:
        wanted += " or newer, below {}.{}".format(*needs.below)
    if facts.capability is None:
        return [
            f"{asked} needs a CUDA device of compute capability {wanted}; "
            f"this device is {facts.device} ({facts.device_name})"
        ]
    reasons = []
    if facts.capability < needs.capability or (needs.below and facts.capability >= needs.below):
        reasons.append(
            f"{asked} needs compute capability {wanted}; this GPU is "
            f"{facts.capability[0]}.{facts.capability[1]} ({facts.device_name}); "
            f"{_recipes_for(engine, facts.capability)}"
        )
    if facts.here and needs.cuda and facts.cuda and _numbers(facts.cuda) < needs.cuda:
        reasons.append(f"{asked} needs CUDA {needs.cuda[0]}.{needs.cuda[1]}; torch was built with CUDA {facts.cuda}")
    return reasons


def _recipes_for(engine: str, capability: tuple[int, int]) -> str:
    names = [
        name
        for name, needs in RECIPES.items()
        if capability >= needs.capability and not (needs.below and capability >= needs.below)
        if engine != "native" or name in ("delayed", "current")
    ]
    return f"use {' or '.join(map(repr, names))}" if names else "use mode='bf16' or 'fp16'"


def _device_problem(device: torch.device) -> str | None:
    if device.type == "meta":
        return "device meta holds no values, so that nothing can be prepared on it; use a real device"
    if device.type != "cuda":
        available = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        if available is None or available.type != device.type:
            return f"device {device} was asked, but torch {torch.__version__} does not have it here; use device 'cpu'"
        return None
    if not torch.cuda.is_available():
        return f"device {device} was asked, but torch {torch.__version__} sees no CUDA device; use device 'cpu'"
    if device.index is not None and device.index >= torch.cuda.device_count():
        return f"device {device} was asked, but this machine has {torch.cuda.device_count()} CUDA device(s)"
    return None


def _version(library: str) -> str | None:
    try:
        if importlib.util.find_spec(library) is None:
            return None
    except (ImportError, ValueError):  # an import hook that refuses, or a stand-in without a spec
        return None
    names = importlib.metadata.packages_distributions().get(library)
    return importlib.metadata.version(names[0]) if names else "unknown"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
