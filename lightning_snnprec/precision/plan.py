"""`ConversionPlan`: what precision does to each module, decided before anything changes."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias

from rich.table import Table
from torch import nn
from torchmetrics import Metric, MetricCollection

from lightning_snnprec.neurons.module import BaseNode
from lightning_snnprec.precision.capability import Facts
from lightning_snnprec.precision.config import PrecisionConfig
from lightning_snnprec.precision.engines.traits import gemm_alignment, resolve_recipe
from lightning_snnprec.precision.layers import gemm_weight, plain_type
from lightning_snnprec.precision.neuron_policy import is_foreign_neuron
from lightning_snnprec.precision.norms import norms_before_linears
from lightning_snnprec.precision.obstacles import foreign_readers, has_gemm, obstacle
from lightning_snnprec.precision.patterns import check_patterns, matches

Decision: TypeAlias = Literal["convert", "skip", "autocast", "neuron", "keep", "container"]
"""convert: an FP8 engine runs it · skip: it has a GEMM that stays out of FP8, for the reason given · autocast: its
GEMM runs in the autocast dtype · neuron: takes the neuron policy · keep: left alone · container: holds others."""


@dataclass(frozen=True)
class PlanRow:
    """One module's decision: name as in `named_modules()` ("" is the root), type, decision, reason."""

    name: str
    type: str
    decision: Decision
    reason: str


@dataclass(frozen=True)
class ConversionPlan:
    """What a configuration does to a model on a device, a row per module.

    Args:
        rows: in the order of `named_modules()`; a neuron stands for all that it is made of, metrics are left out.
        mode: `PrecisionConfig.mode`.
        engine: FP8 engine, or None outside of fp8.
        recipe: resolved FP8 recipe, or None outside of fp8.
    """

    rows: tuple[PlanRow, ...]
    mode: str
    engine: str | None
    recipe: str | None

    @property
    def converted(self) -> tuple[str, ...]:
        """Names of the modules that are converted."""
        return tuple(row.name for row in self.rows if row.decision == "convert")

    @property
    def digest(self) -> str:
        """Hash of all decisions: equal for equal models under equal precision, in any process."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()[:16]

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain Python values."""
        return {
            "mode": self.mode,
            "engine": self.engine,
            "recipe": self.recipe,
            "rows": [asdict(row) for row in self.rows],
        }

    def summary(self) -> str:
        """One sentence: how many modules got which decision."""
        counts = Counter(row.decision for row in self.rows)
        told = ", ".join(f"{name} {counts[name]}" for name in counts if name != "container")
        fp8 = f" ({self.engine}, {self.recipe})" if self.engine else ""
        return f"{self.mode}{fp8}: {told or 'no module to decide on'}; digest {self.digest}"

    def table(self) -> Table:
        """The rows as a table for the terminal, containers left out."""
        table = Table(title=self.summary(), title_justify="left")
        for heading in ("module", "type", "decision", "reason"):
            table.add_column(heading, overflow="fold")
        for row in self.rows:
            if row.decision != "container":
                table.add_row(row.name or "(root)", row.type, row.decision, row.reason)
        return table


def make_plan(model: nn.Module, config: PrecisionConfig, facts: Facts) -> ConversionPlan:
    """Decides on every module of a model; changes nothing, needs no device.

    Args:
        model: converted or not: a converted layer is planned like the plain layer that it is of.
        config: the precision asked for.
        facts: the device, probed or a profile.

    Raises:
        ValueError: a pattern of `include` or `exclude` matches no module.
    """
    names = [name for name, _ in model.named_modules()]
    check_patterns("include", config.include, names)
    check_patterns("exclude", config.exclude, names)
    fp8 = config.mode == "fp8"
    recipe = resolve_recipe(config.fp8_engine, config.fp8_recipe, facts.capability) if fp8 else None
    readers = foreign_readers(model) if fp8 else {}
    rows = {}
    for name, module in _network(model):
        decision, reason = _decide(name, module, config, recipe, readers)
        rows[module] = PlanRow(name, plain_type(module).__name__, decision, reason)
    for norm, linear in norms_before_linears(model).items() if fp8 else ():
        if rows[linear].decision == "convert" and not _left_out(rows[norm].name, config):
            reason = f"gives its FP32 result to {rows[linear].name}, which casts it"
            rows[norm] = replace(rows[norm], decision="convert", reason=reason)
    return ConversionPlan(tuple(rows.values()), config.mode, config.fp8_engine if fp8 else None, recipe)


def _network(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """`named_modules()` without metrics, and without what a neuron is made of (its surrogate function)."""
    left_out: set[nn.Module] = set()
    for name, module in model.named_modules():
        if isinstance(module, BaseNode) or is_foreign_neuron(module):
            left_out.update(part for part in module.modules() if part is not module)
        if isinstance(module, Metric | MetricCollection):
            left_out.update(module.modules())
        if module not in left_out:
            yield name, module


def _decide(
    name: str, module: nn.Module, config: PrecisionConfig, recipe: str | None, readers: dict[nn.Module, str]
) -> tuple[Decision, str]:
    if isinstance(module, BaseNode):
        return "neuron", _neuron_reason(config)
    if is_foreign_neuron(module):
        return "keep", "a neuron of another library keeps its own precision"
    if has_gemm(module):
        if recipe is None:
            return _plain_decision(config)
        return _fp8_decision(name, module, config, recipe, readers)
    if next(module.children(), None) is not None and next(module.parameters(recurse=False), None) is None:
        return "container", ""
    return "keep", "has no GEMM"


def _plain_decision(config: PrecisionConfig) -> tuple[Decision, str]:
    if config.autocast_dtype == "fp32":
        return "keep", "computes in fp32"
    return "autocast", f"computes in {config.autocast_dtype} under autocast"


def _fp8_decision(
    name: str, module: nn.Module, config: PrecisionConfig, recipe: str, readers: dict[nn.Module, str]
) -> tuple[Decision, str]:
    reason = _left_out(name, config) or obstacle(module, readers)
    if reason is not None:
        return "skip", f"{reason}; computes in {config.fp8_fallback_dtype}"
    return _size_decision(module, config, recipe)


def _left_out(name: str, config: PrecisionConfig) -> str | None:
    if matches(name, config.exclude):
        return "named by exclude"
    if config.include and not matches(name, config.include):
        return "not named by include"
    return None


def _size_decision(module: nn.Module, config: PrecisionConfig, recipe: str) -> tuple[Decision, str]:
    step = gemm_alignment(config.fp8_engine, recipe)
    simulated = " (simulation)" if config.fp8_engine == "emulated" else ""
    out, into = gemm_weight(module).shape
    if out % step == 0 and into % step == 0:
        return "convert", f"{config.fp8_engine} {recipe}{simulated}, {into} to {out}"
    sizes = f"{into} to {out}"
    if config.pad_unaligned:
        padded = f"{into + -into % step} to {out + -out % step}"
        return "convert", f"{config.fp8_engine} {recipe}{simulated}, {sizes} padded to {padded} inside"
    return (
        "skip",
        f"{sizes} is not a multiple of {step} and pad_unaligned is off; computes in {config.fp8_fallback_dtype}",
    )


def _neuron_reason(config: PrecisionConfig) -> str:
    if config.neuron_storage is None:
        return "fp32 state"
    return f"{config.neuron_storage} state, {config.neuron_fwd} forward, {config.neuron_bwd} backward"
