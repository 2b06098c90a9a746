"""Which combinations of `PrecisionConfig` fields make sense, as one list of rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lightning_snnprec.precision.config import PrecisionConfig

NATIVE_RECIPES = ("auto", "delayed", "current")
_DELAYED_ONLY = ("amax_history_len", "amax_compute_algo", "margin")
_FP8_ONLY = (
    "fp8_engine",
    "fp8_recipe",
    "fp8_fallback_dtype",
    "pad_unaligned",
    "include",
    "exclude",
    "fp8_only_where_faster",
    "stochastic_rounding",
    "cuda_graph",
    *_DELAYED_ONLY,
)


def combination_faults(config: PrecisionConfig, defaults: dict[str, Any]) -> list[str]:
    """Sentences on fields that are valid alone but not together; empty when the config makes sense.

    Args:
        config: fields that each passed their own check.
        defaults: the default of every field.
    """
    changed = {name for name, default in defaults.items() if getattr(config, name) != default}
    if config.mode != "fp8":
        faults = _needs_fp8(config, changed)
    else:
        faults = _recipe_faults(config, changed) + _engine_faults(config)
    return faults + _loss_scale_faults(config, changed) + _neuron_faults(config, changed)


def _needs_fp8(config: PrecisionConfig, changed: set[str]) -> list[str]:
    return [
        f"{name}={getattr(config, name)!r} needs mode='fp8', but mode is {config.mode!r}; "
        f"set mode='fp8' or leave {name} out"
        for name in _FP8_ONLY
        if name in changed
    ]


def _recipe_faults(config: PrecisionConfig, changed: set[str]) -> list[str]:
    if config.fp8_recipe in ("auto", "delayed"):
        return []
    return [
        f"{name}={getattr(config, name)!r} is a setting of delayed scaling, but fp8_recipe is {config.fp8_recipe!r}; "
        f"set fp8_recipe='delayed' or leave {name} out"
        for name in _DELAYED_ONLY
        if name in changed
    ]


def _engine_faults(config: PrecisionConfig) -> list[str]:
    faults = []
    if config.fp8_engine == "native" and config.fp8_recipe not in NATIVE_RECIPES:
        faults.append(
            f"fp8_recipe={config.fp8_recipe!r} does not exist for fp8_engine='native', which scales per tensor; "
            f"use one of {', '.join(map(repr, NATIVE_RECIPES))}, or fp8_engine='te' or 'emulated'"
        )
    if config.cuda_graph and config.fp8_engine != "native":
        faults.append(
            f"cuda_graph=True needs fp8_engine='native', but fp8_engine is {config.fp8_engine!r}; "
            "set fp8_engine='native' or leave cuda_graph out"
        )
    if config.fp8_only_where_faster and config.fp8_engine == "emulated":
        faults.append(
            "fp8_only_where_faster=True needs a real engine, and fp8_engine='emulated' is a simulation that is never "
            "faster; use fp8_engine='te' or 'native', or leave fp8_only_where_faster out"
        )
    if config.stochastic_rounding and config.fp8_engine == "te" and config.fp8_recipe != "nvfp4":
        faults.append(
            f"stochastic_rounding=True exists in Transformer Engine for fp8_recipe='nvfp4' only, but fp8_recipe is "
            f"{config.fp8_recipe!r}; use fp8_engine='native' or 'emulated', or leave stochastic_rounding out"
        )
    return faults


def _loss_scale_faults(config: PrecisionConfig, changed: set[str]) -> list[str]:
    if "loss_scale" not in changed or config.uses_loss_scale:
        return []
    return [
        f"loss_scale is a setting of fp16 gradients, but mode is {config.mode!r}"
        + (f" with fp8_fallback_dtype={config.fp8_fallback_dtype!r}" if config.mode == "fp8" else "")
        + "; set mode='fp16' (or fp8_fallback_dtype='fp16'), or leave loss_scale out"
    ]


def _neuron_faults(config: PrecisionConfig, changed: set[str]) -> list[str]:
    faults = []
    for name in ("neuron_fwd", "neuron_bwd"):
        value = getattr(config, name)
        if name in changed and config.neuron_storage is None:
            faults.append(
                f"{name}={value!r} needs neuron_storage, which is not set; set neuron_storage (for example "
                f"{_storage_for(value)!r}) or leave {name} out"
            )
        elif value == "fp8" and not str(config.neuron_storage).startswith("float8"):
            faults.append(
                f"{name}='fp8' needs a float8 neuron_storage, but neuron_storage is {config.neuron_storage!r}; "
                "set neuron_storage='float8_e4m3fn' or 'float8_e5m2'"
            )
    return faults


def _storage_for(arithmetic: str) -> str:
    return "float8_e4m3fn" if arithmetic == "fp8" else arithmetic
