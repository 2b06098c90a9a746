"""The package's ranks: a module imports from lower ranks only, and each optional engine is imported in one place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import lightning_snnprec

PACKAGE = Path(lightning_snnprec.__file__).parent
RANKS = {
    "arguments": -1, "rng": 0, "kernels": 0, "formats": 0, "data": 0,
    "neurons": 1,
    "models": 2, "precision": 2, "optim": 2,
    "telemetry": 3, "checkpoint": 3,
    "config": 4,
    "training": 5, "megatron": 5,
    "bench": 6,
    "cli": 7,
}  # fmt: skip


def part_of(path: Path) -> str:
    inside = path.relative_to(PACKAGE)
    return inside.parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def test_every_module_belongs_to_a_ranked_part() -> None:
    assert {part_of(path) for path in modules()} <= set(RANKS)


def test_a_module_imports_from_lower_ranks_or_its_own_part_only() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)} (rank {RANKS[part_of(path)]}) imports {name}"
        for path in modules()
        for name in imports(path)
        if name.startswith("lightning_snnprec.")
        for part in [name.split(".")[1]]
        if part in RANKS and part != part_of(path) and RANKS[part] >= RANKS[part_of(path)]
    ]
    assert wrong == []


def importers(package: str) -> set[str]:
    return {
        str(path.relative_to(PACKAGE))
        for path in modules()
        for name in imports(path)
        if name.partition(".")[0] == package
    }


def test_optional_engines_are_imported_in_one_place_each() -> None:
    assert {name.partition("/")[0] for name in importers("triton")} <= {"kernels"}
    assert importers("transformer_engine") <= {"precision/engines/te.py"}
    assert importers("spikingjelly") == set()
