"""`NumericContract`: what a converted layer or a neuron promises of its numbers, in one record that can be checked."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from rich.table import Table
from torch import nn

from lightning_snnprec.formats import BLOCK_1X128, BLOCK_128X128, E4M3, E5M2, MXFP8, NVFP4, NVFP4_2D
from lightning_snnprec.precision.config import PrecisionConfig
from lightning_snnprec.precision.layers import CONVERTED, plain_type
from lightning_snnprec.precision.plan import ConversionPlan

CONTRACT_FILE = "contract.json"
_GROUPS = {
    "delayed": ("per tensor", "all elements", "from the amax of earlier optimizer steps"),
    "current": ("per tensor", "all elements", "from the tensor's own amax, at each cast"),
    "block": (
        "contracted dimension",
        f"1x{BLOCK_1X128.cols} (weights {BLOCK_128X128.rows}x{BLOCK_128X128.cols})",
        "from each block's own amax, rounded down to a power of two",
    ),
    "mxfp8": ("contracted dimension", f"1x{MXFP8.cols}, E8M0", "from each block's own amax, rounded up"),
    "nvfp4": (
        "contracted dimension",
        f"1x{NVFP4.cols} E4M3 (weights {NVFP4_2D.rows}x{NVFP4_2D.cols}), and one FP32 per tensor",
        "from the amax of each block and of the tensor",
    ),
}
_ACCEPTED = {
    "nvfp4": "accuracy within two points of FP32; outputs within 25 % of FP32 in norm",
    "fp8": "accuracy within one point of FP32; outputs within 8 % of FP32 in norm",
}


@dataclass(frozen=True)
class NumericContract:
    """What one module promises. All fields are text, for people and for comparison of two runs.

    Args:
        module: name in the model.
        kind: type of the module.
        storage: format of the operands (layers) or of the membrane (neurons) as they are kept.
        input: dtype in which input arrives.
        accumulator: dtype of sums inside a GEMM, or of the membrane's update.
        reduction: dtype in which gradients are reduced over batch and ranks.
        output: dtype of the output.
        parameters: dtype of the Parameters; they are the master weights.
        scale_axis: along what scales run.
        scale_group: what shares one scale.
        scale_update: where a scale comes from.
        zero_point: always "none": the formats are symmetric.
        rounding: of casts, forward and gradient.
        saturation: what happens above the largest finite value, ±Inf included.
        nan: what happens to NaN.
        forced_fp32: what stays FP32 whatever is asked.
        rng: random numbers that the module draws.
        error_bound: difference allowed after a reduction over ranks, and after a resume.
        acceptance: when the module's result counts as right.
    """

    module: str
    kind: str
    storage: str
    input: str
    accumulator: str
    reduction: str
    output: str
    parameters: str
    scale_axis: str
    scale_group: str
    scale_update: str
    zero_point: str
    rounding: str
    saturation: str
    nan: str
    forced_fp32: str
    rng: str
    error_bound: str
    acceptance: str

    def to_dict(self) -> dict[str, str]:
        """The fields by name."""
        return asdict(self)


def contracts(model: nn.Module, config: PrecisionConfig, plan: ConversionPlan) -> tuple[NumericContract, ...]:
    """The contract of every converted layer and every neuron, in the plan's order."""
    modules = dict(model.named_modules())
    made = []
    for row in plan.rows:
        dtypes = sorted({str(p.dtype).removeprefix("torch.") for p in modules[row.name].parameters(recurse=False)})
        if row.decision == "convert" and plain_type(modules[row.name]) in CONVERTED:
            made.append(_layer(row.name, row.type, config, plan, ", ".join(dtypes)))
        elif row.decision == "neuron":
            made.append(_neuron(row.name, row.type, config, ", ".join(dtypes) or "none"))
    return tuple(made)


def contract_table(found: tuple[NumericContract, ...]) -> Table:
    """Contracts as a table: a row per promise, modules that promise the same together."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for contract in found:
        promises = tuple(contract.to_dict()[field.name] for field in fields(NumericContract)[2:])
        groups.setdefault(promises, []).append(f"{contract.module or '(root)'} ({contract.kind})")
    table = Table(title="Numeric contract", title_justify="left", show_lines=False)
    table.add_column("")
    for names in groups.values():
        table.add_column("\n".join(names), overflow="fold")
    for index, field in enumerate(fields(NumericContract)[2:]):
        table.add_row(field.name.replace("_", " "), *(promises[index] for promises in groups))
    return table


def _layer(name: str, kind: str, config: PrecisionConfig, plan: ConversionPlan, parameters: str) -> NumericContract:
    assert plan.recipe is not None
    fp4 = plan.recipe == "nvfp4"
    gradients = E4M3 if plan.recipe in ("block", "mxfp8") else E5M2
    axis, group, update = _GROUPS[plan.recipe]
    dtype = config.fp8_fallback_dtype
    return NumericContract(
        module=name,
        kind=kind,
        storage="E2M1" if fp4 else f"E4M3 (input, weight), {gradients.name} (gradient of the output)",
        input=dtype,
        accumulator="fp32" + (", on restored values" if config.fp8_engine == "emulated" else ", in the tensor core"),
        reduction="fp32 (parameter gradients); amax by maximum over ranks",
        output=dtype,
        parameters=f"{parameters}, master weights",
        scale_axis=axis,
        scale_group=group,
        scale_update=update,
        zero_point="none",
        rounding="nearest even" + (", gradients stochastic" if config.stochastic_rounding else ""),
        saturation="to the largest finite value, ±Inf too; Inf and NaN are counted before the cast",
        nan="none in E2M1: becomes a finite value, counted before the cast" if fp4 else "stays NaN",
        forced_fp32="scales, amax, bias gradient",
        rng="a generator of its own, saved" if config.stochastic_rounding or fp4 else "none",
        error_bound="ranks: equal scales, gradients to the order of sums; resume: none, bit-exact",
        acceptance=_ACCEPTED["nvfp4" if fp4 else "fp8"],
    )


def _neuron(name: str, kind: str, config: PrecisionConfig, parameters: str) -> NumericContract:
    storage = config.neuron_storage or "fp32"
    return NumericContract(
        module=name,
        kind=kind,
        storage=f"{storage} membrane",
        input=config.autocast_dtype,
        accumulator=f"{config.neuron_fwd} forward, {config.neuron_bwd} backward",
        reduction="fp32 (the gradient of a learnable time constant)",
        output=f"spikes, exactly 0 or 1, in the input's dtype ({config.autocast_dtype})",
        parameters=parameters,
        scale_axis="none",
        scale_group="none",
        scale_update="none",
        zero_point="none",
        rounding="nearest even",
        saturation="none: ±Inf stays",
        nan="no spike; stays in the membrane until the reset",
        forced_fp32="membrane minus threshold, exponentials, surrogate derivative",
        rng="none",
        error_bound="ranks: none; resume: none, bit-exact",
        acceptance="spikes equal to the FP64 reference wherever |membrane - threshold| is above the storage's error",
    )


def save_contract(model: nn.Module, config: PrecisionConfig, plan: ConversionPlan, folder: Path) -> Path:
    """Writes the contracts of a run to `contract.json` in its folder, whole or not at all; returns the file."""
    report = {"digest": plan.digest, "contracts": [contract.to_dict() for contract in contracts(model, config, plan)]}
    path, aside = folder / CONTRACT_FILE, folder / f".{CONTRACT_FILE}"
    aside.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    aside.replace(path)
    return path
