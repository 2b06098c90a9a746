"""`snnprec doctor`: what this machine can run, what is missing for the rest, and how to install it."""

from __future__ import annotations

import importlib.util
import os
import platform
from collections.abc import Sequence
from importlib.metadata import distributions, version

import torch

from lightning_snnprec.cli.terminal import say, show_rows
from lightning_snnprec.config.compose import compose_recipe
from lightning_snnprec.config.errors import UserError
from lightning_snnprec.config.location import group_options, recipes_dir
from lightning_snnprec.config.schema import plain_recipe, precision_of
from lightning_snnprec.precision import Facts, probe, refusals

_PACKAGES = (
    "lightning-snnprec",
    "torch",
    "lightning",
    "torchmetrics",
    "hydra-core",
    "omegaconf",
    "numpy",
    "scikit-learn",
)
_OPTIONAL = {
    "triton": ("triton", "fused neuron kernels and FP8 through this project's own kernels"),
    "transformer_engine": ("fp8", "FP8 through Transformer Engine"),
    "torchvision": ("vision", "image data sets"),
    "matplotlib": ("plots", "plots"),
    "tensorboard": ("tensorboard", "logging to TensorBoard"),
    "megatron": ("megatron", "Megatron-LM"),
}


def run(arguments: Sequence[str]) -> int:
    """Prints versions, devices, every precision with yes or the reasons against it, and what to install.

    Returns:
        Exit status 0.

    Raises:
        UserError: arguments were given.
    """
    if len(arguments) > 1:
        raise UserError(f"snnprec doctor takes no arguments, got {' '.join(arguments[1:])}")
    facts = _devices()
    _show("versions", [("python", platform.python_version()), *((name, _version(name)) for name in _PACKAGES)])
    _show("this machine", [("processors", str(os.cpu_count())), ("recipes", str(recipes_dir())), *_device_rows(facts)])
    for device in facts:
        _show(f"precision on {device.device} ({device.device_name})", _verdicts(device))
    _show("optional parts", [_optional(name, *rest) for name, rest in _OPTIONAL.items()])
    return 0


def _devices() -> list[Facts]:
    return [probe("cpu"), *(probe(f"cuda:{index}") for index in range(torch.cuda.device_count()))]


def _device_rows(facts: list[Facts]) -> list[tuple[str, str]]:
    gpus = [(device.device, dict(device.lines()).get("device", device.device_name)) for device in facts[1:]]
    if gpus:
        return gpus
    if torch.version.cuda is None:
        return [("GPU", f"none: torch {torch.__version__} is built without CUDA; a build with it: https://pytorch.org")]
    return [("GPU", f"none that torch {torch.__version__} (CUDA {torch.version.cuda}) can use; see nvidia-smi")]


def _verdicts(facts: Facts) -> list[tuple[str, str]]:
    rows = []
    for option in group_options("precision"):
        precision = precision_of(plain_recipe(compose_recipe([f"precision={option}"])))
        reasons = refusals(precision, facts)
        rows.append(
            (f"precision={option}", "no\n" + "\n".join(f"- {reason}" for reason in reasons) if reasons else "yes")
        )
    return sorted(rows, key=lambda row: row[1] != "yes")


def _optional(package: str, extra: str, use: str) -> tuple[str, str]:
    if importlib.util.find_spec(package) is None:
        return package, f"not installed; for {use}: pip install 'lightning-snnprec[{extra}]'"
    return package, f"{_version(package)}, for {use}"


def _version(package: str) -> str:
    names = (package, package.replace("_", "-"))
    found = [version(name) for name in names if any(distributions(name=name))]
    if found:
        return found[0]
    return "run from its source, not installed" if package == "lightning-snnprec" else "installed"


def _show(title: str, rows: list[tuple[str, str]]) -> None:
    say(title)
    show_rows([(f"  {what}", value) for what, value in rows])
    say()
