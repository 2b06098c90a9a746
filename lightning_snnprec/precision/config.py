"""`PrecisionConfig`: what precision a run asks for, as frozen data with complete validation."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from lightning_snnprec.precision.loss_scale import LossScale
from lightning_snnprec.precision.rules import combination_faults

Mode: TypeAlias = Literal["bf16", "fp32", "fp16", "fp8"]
Fp8Engine: TypeAlias = Literal["te", "native", "emulated"]
Fp8Recipe: TypeAlias = Literal["auto", "delayed", "current", "block", "mxfp8", "nvfp4"]
FallbackDtype: TypeAlias = Literal["bf16", "fp16", "fp32"]
AmaxAlgo: TypeAlias = Literal["max", "most_recent"]
NeuronStorage: TypeAlias = Literal["fp32", "fp16", "bf16", "float8_e4m3fn", "float8_e5m2"]
NeuronArithmetic: TypeAlias = Literal["fp32", "bf16", "fp16", "fp8"]

_CHOICES: dict[str, tuple[str | None, ...]] = {
    "mode": get_args(Mode),
    "fp8_engine": get_args(Fp8Engine),
    "fp8_recipe": get_args(Fp8Recipe),
    "fp8_fallback_dtype": get_args(FallbackDtype),
    "amax_compute_algo": get_args(AmaxAlgo),
    "neuron_storage": (None, *get_args(NeuronStorage)),
    "neuron_fwd": get_args(NeuronArithmetic),
    "neuron_bwd": get_args(NeuronArithmetic),
}
_FLAGS = ("pad_unaligned", "fp8_only_where_faster", "stochastic_rounding", "cuda_graph")
_INTEGERS = {"amax_history_len": (1, 2**20), "margin": (0, 100)}
_PATTERNS = ("include", "exclude")
_OLDER_NAMES = {
    "triton_storage": "neuron_storage",
    "triton_fwd": "neuron_fwd",
    "triton_bwd": "neuron_bwd",
}


@dataclass(frozen=True)
class PrecisionConfig:
    """What precision a model trains in: model precision (`mode`) and neuron precision, independently.

    Every fault of a configuration is told at once, in one `ValueError` with a line per fault: the field, the
    value, what is allowed and what to write instead. What a *machine* lacks is not judged here, see `refusals`.

    Args:
        mode: how ordinary layers compute: "bf16" (autocast), "fp32", "fp16" (autocast with a GradScaler),
            "fp8" (an engine runs the GEMM layers, the rest autocasts to `fp8_fallback_dtype`).
        fp8_engine: "te" (Transformer Engine), "native" (this project's spike-aware kernels), "emulated" (a slow,
            exact simulation that runs anywhere).
        fp8_recipe: scaling; "auto" is the engine's default on that device, which `describe()` names.
        fp8_fallback_dtype: autocast dtype of everything that an engine does not convert.
        amax_history_len: steps of amax kept per tensor; delayed scaling only.
        amax_compute_algo: "max" or "most_recent" of that history; delayed scaling only.
        margin: the scale is divided by 2**margin; delayed scaling only.
        pad_unaligned: pad layers whose sizes an FP8 GEMM refuses, instead of skipping them.
        include: fnmatch patterns over module names; when given, only matching modules are converted.
        exclude: fnmatch patterns over module names that are never converted.
        fp8_only_where_faster: convert only layers for which this GPU's record shows a gain.
        stochastic_rounding: round gradients stochastically, with a generator of its own.
        cuda_graph: run forward and backward as one CUDA graph; native engine, static shapes.
        neuron_storage: membrane dtype between time steps; None is FP32 state and the automatic kernel.
        neuron_fwd: arithmetic of the neurons' forward; below FP32 it needs `neuron_storage`.
        neuron_bwd: arithmetic of the neurons' backward; below FP32 it needs `neuron_storage`.
        loss_scale: GradScaler settings, for fp16 and for fp8 with fp16 fallback; a mapping with some of
            `init`, `growth_factor`, `backoff_factor`, `growth_interval`.
        triton_storage: older name of `neuron_storage`.
        triton_fwd: older name of `neuron_fwd`.
        triton_bwd: older name of `neuron_bwd`.

    Raises:
        ValueError: a bad value or combination; all of them are listed.
    """

    mode: Mode = "bf16"
    fp8_engine: Fp8Engine = "te"
    fp8_recipe: Fp8Recipe = "auto"
    fp8_fallback_dtype: FallbackDtype = "bf16"
    amax_history_len: int = 1024
    amax_compute_algo: AmaxAlgo = "max"
    margin: int = 0
    pad_unaligned: bool = True
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    fp8_only_where_faster: bool = False
    stochastic_rounding: bool = False
    cuda_graph: bool = False
    neuron_storage: NeuronStorage | None = None
    neuron_fwd: NeuronArithmetic = "fp32"
    neuron_bwd: NeuronArithmetic = "fp32"
    loss_scale: LossScale = field(default_factory=LossScale)
    _: KW_ONLY
    triton_storage: InitVar[NeuronStorage | None] = None
    triton_fwd: InitVar[NeuronArithmetic | None] = None
    triton_bwd: InitVar[NeuronArithmetic | None] = None

    def __post_init__(self, triton_storage: Any, triton_fwd: Any, triton_bwd: Any) -> None:
        older = {"triton_storage": triton_storage, "triton_fwd": triton_fwd, "triton_bwd": triton_bwd}
        faults = [fault for name, value in older.items() if (fault := self._take_older(name, value))]
        faults += [fault for name in _PATTERNS if (fault := self._normalise_patterns(name))]
        faults += self._normalise_loss_scale()
        faults += self._value_faults()
        if not faults:
            faults = combination_faults(self, self._defaults())
        if faults:
            raise ValueError(_message(faults))

    @classmethod
    def from_any(cls, config: PrecisionConfig | str | Mapping[str, Any] | None = None) -> PrecisionConfig:
        """Makes a config from what a user may hand over.

        Args:
            config: None (bf16), a mode such as "fp8", a mapping of fields (an OmegaConf mapping too), or a config.

        Raises:
            ValueError: unknown fields (with near names) and bad values, all at once.
            TypeError: something else was given.
        """
        if config is None:
            return cls()
        if isinstance(config, cls):
            return config
        if isinstance(config, str):
            return cls._from_mapping({"mode": config})
        if isinstance(config, Mapping):
            return cls._from_mapping(config)
        raise TypeError(
            f"a precision is None, one of {_listed(get_args(Mode))}, a mapping of PrecisionConfig's fields, or a "
            f"PrecisionConfig; got {type(config).__name__}: {config!r}"
        )

    @classmethod
    def _from_mapping(cls, fields: Mapping[str, Any]) -> PrecisionConfig:
        known = {f.name for f in dataclasses.fields(cls)} | set(_OLDER_NAMES)
        given = {str(name): _plain(value) for name, value in fields.items()}
        unknown = [name for name in given if name not in known]
        faults = [_unknown_field(name, known) for name in unknown]
        try:
            config = cls(**{name: value for name, value in given.items() if name in known})
        except ValueError as error:
            if faults:
                raise ValueError(_message([*faults, *_faults_of(error)])) from None
            raise
        if faults:
            raise ValueError(_message(faults))
        return config

    def to_dict(self) -> dict[str, Any]:
        """The fields as plain Python values (tuples as lists), fit for YAML, JSON and checkpoints."""
        plain = dataclasses.asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in plain.items()}

    @property
    def uses_loss_scale(self) -> bool:
        """Whether gradients pass through FP16, so that the loss must be scaled."""
        return self.mode == "fp16" or (self.mode == "fp8" and self.fp8_fallback_dtype == "fp16")

    @property
    def autocast_dtype(self) -> Literal["bf16", "fp16", "fp32"]:
        """The dtype in which ordinary layers run under autocast; "fp32" means no autocast."""
        return self.fp8_fallback_dtype if self.mode == "fp8" else self.mode

    def _take_older(self, older: str, value: Any) -> str | None:
        if value is None:
            return None
        name = _OLDER_NAMES[older]
        current = getattr(self, name)
        if current not in (self._defaults()[name], value):
            return f"{older}={value!r} is the older name of {name}, which is also given, as {current!r}; keep {name}"
        object.__setattr__(self, name, value)
        return None

    def _normalise_patterns(self, name: str) -> str | None:
        value = getattr(self, name)
        patterns = (value,) if isinstance(value, str) else value
        if not isinstance(patterns, list | tuple) or not all(isinstance(p, str) and p for p in patterns):
            return (
                f"{name}={value!r} must be a list of fnmatch patterns over module names, "
                "such as ['head', 'blocks.*.proj']"
            )
        object.__setattr__(self, name, tuple(patterns))
        return None

    def _normalise_loss_scale(self) -> list[str]:
        try:
            object.__setattr__(self, "loss_scale", LossScale.from_any(self.loss_scale))
        except ValueError as error:
            return _faults_of(error)
        return []

    def _value_faults(self) -> list[str]:
        faults = []
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if value not in allowed or isinstance(value, bool):
                faults.append(_bad_choice(name, value, allowed))
        for name in _FLAGS:
            value = getattr(self, name)
            if not isinstance(value, bool):
                faults.append(f"{name}={value!r} must be true or false")
        for name, (least, most) in _INTEGERS.items():
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
                faults.append(f"{name}={value!r} must be a whole number from {least} to {most}")
        return faults

    @classmethod
    def _defaults(cls) -> dict[str, Any]:
        return {
            f.name: f.default_factory() if f.default_factory is not dataclasses.MISSING else f.default
            for f in dataclasses.fields(cls)
        }


_PREFIX = "PrecisionConfig: "


def _message(faults: list[str]) -> str:
    return _PREFIX + ("\n" + " " * len(_PREFIX)).join(faults)


def _faults_of(error: ValueError) -> list[str]:
    return [line.strip() for line in str(error).removeprefix(_PREFIX).splitlines()]


def _listed(values: tuple[str | None, ...]) -> str:
    return ", ".join(repr(value) for value in values)


def _bad_choice(name: str, value: Any, allowed: tuple[str | None, ...]) -> str:
    near = difflib.get_close_matches(str(value).lower(), [a for a in allowed if a is not None], n=1, cutoff=0.5)
    return f"{name}={value!r} is not one of {_listed(allowed)}" + (f"; did you mean {near[0]!r}?" if near else "")


def _unknown_field(name: str, known: set[str]) -> str:
    near = difflib.get_close_matches(name, known, n=2, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"the fields are {', '.join(sorted(known))}"
    return f"unknown field {name!r}; {hint}"


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value
