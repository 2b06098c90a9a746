"""What each FP8 engine and recipe needs of a machine, as data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RecipeNeeds:
    """Hardware and CUDA that a scaling recipe needs for real FP8 GEMMs.

    Args:
        capability: lowest compute capability.
        below: first compute capability at which it does not exist, or None.
        cuda: lowest CUDA version, or None.
        alignment: sizes of a GEMM (in, out, rows) must be multiples of it, forward and backward.
    """

    capability: tuple[int, int]
    below: tuple[int, int] | None = None
    cuda: tuple[int, int] | None = None
    alignment: int = 16


@dataclass(frozen=True)
class EngineTraits:
    """Needs of an engine.

    Args:
        library: distribution that must be installed, or None.
        least: lowest version of it.
        extra: extra of this package that brings it.
        simulated: computes the GEMM in a wider dtype after exact casts; runs on any device, any size.
    """

    library: str | None
    least: str | None = None
    extra: str | None = None
    simulated: bool = False


RECIPES: dict[str, RecipeNeeds] = {
    "delayed": RecipeNeeds(capability=(8, 9)),
    "current": RecipeNeeds(capability=(8, 9)),
    "block": RecipeNeeds(capability=(9, 0), cuda=(12, 9)),
    "mxfp8": RecipeNeeds(capability=(10, 0), below=(12, 0), alignment=32),
    "nvfp4": RecipeNeeds(capability=(10, 0), alignment=32),
}
TRAITS: dict[str, EngineTraits] = {
    "te": EngineTraits(library="transformer_engine", least="2.16", extra="fp8"),
    "native": EngineTraits(library="triton", least="3.6", extra="triton"),
    "emulated": EngineTraits(library=None, simulated=True),
}


def resolve_recipe(engine: str, recipe: str, capability: tuple[int, int] | None) -> str:
    """The recipe that runs when `recipe` is asked: "auto" becomes the engine's default on that device.

    Transformer Engine's own default is MXFP8 on compute capability 10.x, current scaling from 12.0, delayed scaling
    below (its `get_default_recipe`). The other engines default to delayed scaling.
    """
    if recipe != "auto":
        return recipe
    if engine == "te" and capability is not None and capability >= (10, 0):
        return "mxfp8" if capability < (12, 0) else "current"
    return "delayed"


def gemm_alignment(engine: str, recipe: str) -> int:
    """Multiple to which an engine needs a GEMM's in, out and row sizes; 1 when any size runs."""
    return 1 if TRAITS[engine].simulated else RECIPES[recipe].alignment
