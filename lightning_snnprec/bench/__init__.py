"""Benchmarks, run as `snnprec bench NAME`; each prints its figures and can write them as a JSON record."""

from lightning_snnprec.bench.command import main

__all__ = ["main"]
