"""The command line of the benchmarks."""

from __future__ import annotations

import argparse
import importlib

_BENCHMARKS = {
    "overhead": "step time through SNNPrecision against Lightning's own MixedPrecision",
    "numerics": "errors of a layer in each precision against FP64",
    "digits": "accuracy on the digits in each precision, over several seeds",
    "neuron": "neuron kernels against copy bandwidth and SpikingJelly's kernels, on a GPU",
    "tables": "write the tables of a Markdown file from the records",
}


def main(argv: list[str]) -> int:
    """Runs one benchmark.

    Args:
        argv: its name and arguments, without the program's name.

    Returns:
        Exit status: 0, or 1 when the benchmark missed a limit that it checks.
    """
    parser = argparse.ArgumentParser(prog="snnprec bench", description=__doc__)
    chosen = parser.add_subparsers(dest="name", required=True, metavar="NAME")
    for name, told in _BENCHMARKS.items():
        module = importlib.import_module(f"lightning_snnprec.bench.{name}")
        module.add_arguments(chosen.add_parser(name, help=told, description=module.__doc__))
    arguments = parser.parse_args(argv)
    status: int = importlib.import_module(f"lightning_snnprec.bench.{arguments.name}").run(arguments)
    return status
