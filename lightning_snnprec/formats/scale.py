"""The scale of a quantized tensor, with everything needed to read it later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from lightning_snnprec.arguments import choice_fault, raise_faults
from lightning_snnprec.formats.spec import FORMATS

ScaleMeaning = Literal["encode", "decode"]
"""`encode`: payload = x * values. `decode`: restored = payload * values."""

SCALE_VERSION = 1
_FIELDS = ("values", "axis", "group_size", "update", "format", "meaning", "stored_as")


@dataclass(frozen=True, eq=False)
class Scale:
    """Scale values and what they mean.

    Attributes:
        values: FP32, 0-dim for one scale per tensor, else one per group along `axis` (and along the rows before it,
            where the group has more than one).
        axis: the dimension that is cut into groups; None for one scale per tensor.
        group_size: (rows, columns) of a group; None for one scale per tensor.
        update: where the values came from: "given", "current", "delayed_max", "delayed_most_recent", or a block rule.
        format: name of the payload's format.
        meaning: "encode" or "decode".
        stored_as: name of the format whose grid the values lie on.
        version: version of this record.
    """

    values: Tensor
    axis: int | None
    group_size: tuple[int, int] | None
    update: str
    format: str
    meaning: ScaleMeaning = "encode"
    stored_as: str = "FP32"
    version: int = SCALE_VERSION

    def state(self) -> dict[str, Any]:
        """Returns a copy as a tensor and plain values, which `torch.load(weights_only=True)` reads."""
        state: dict[str, Any] = {name: getattr(self, name) for name in _FIELDS}
        return {**state, "values": self.values.detach().clone(), "version": self.version}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Scale:
        """Returns the scale that `state` holds.

        Raises:
            ValueError: another version, missing or unknown entries, an unknown format, or values that are not FP32.
        """
        if state.get("version") != SCALE_VERSION:
            found = state.get("version")
            raise ValueError(f"Scale: this release reads scale records of version {SCALE_VERSION}; found {found!r}.")
        odd = set(state) ^ {*_FIELDS, "version"}
        if odd:
            raise ValueError(f"Scale: missing or unknown entries {sorted(odd)}; a record has {[*_FIELDS, 'version']}.")
        group = state["group_size"]
        scale = cls(**{**state, "group_size": None if group is None else (int(group[0]), int(group[1]))})
        raise_faults(
            "Scale",
            [
                choice_fault("format", scale.format, FORMATS),
                choice_fault("stored_as", scale.stored_as, FORMATS),
                choice_fault("meaning", scale.meaning, get_args(ScaleMeaning)),
                values_fault(scale.values),
            ],
        )
        return scale


def values_fault(values: object) -> str | None:
    """Says what is wrong when `values` is not an FP32 tensor; else None."""
    if isinstance(values, Tensor) and values.dtype == torch.float32:
        return None
    found = f"a tensor of {values.dtype}" if isinstance(values, Tensor) else type(values).__name__
    return f"values: needs an FP32 tensor; found {found}."
