"""The neuron kernels against the bandwidth of a copy and against SpikingJelly's kernels, on a GPU.

LIF neurons (tau 2, hard reset, sigmoid) with BF16 input, forward and backward, under each membrane storage. Times are
medians of CUDA-graph replays over several inputs that together do not fit in the cache; host time is that of eager
calls. Bytes are those that have to move: input, spikes, last membrane, gradient, input gradient, and what is kept for
backward. The kernels are compared with plain torch first. SpikingJelly is measured where it is installed.
"""

from __future__ import annotations

import argparse
import importlib
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lightning_snnprec.bench.cuda_time import copy_bandwidth, graph_time
from lightning_snnprec.bench.record import make_record, write_record
from lightning_snnprec.kernels import Neuron, obstacles, operators, plain, run_sequence
from lightning_snnprec.kernels.problem import encode
from lightning_snnprec.kernels.traffic import Traffic, traffic

SHARE, SPEED_UP, HOST_RATIO = 0.85, 2.0, 0.5
"""Least share of copy bandwidth from 2^24 elements on, least speed-up over an FP32-state peer, largest host time."""

STORAGES: dict[str, torch.dtype | None] = {
    "default": None,
    "fp32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
}
_LARGE = 24
_FOOTPRINT = 2**28
_MOST_INPUTS = 32
_HOST_ELEMENTS = 2**12

Layer = Callable[[Tensor], Tensor]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `snnprec bench neuron`."""
    parser.add_argument("--time-steps", type=int, nargs="+", default=[4, 16, 64], help="T (default 4 16 64)")
    parser.add_argument(
        "--log2-elements", type=int, nargs="+", default=[20, 22, 24, 26], help="elements of an input (20 22 24 26)"
    )
    parser.add_argument(
        "--storages", nargs="+", choices=STORAGES, default=list(STORAGES), help="membrane storages (default all)"
    )
    parser.add_argument("--repeats", type=int, default=20, help="timed replays (default 20)")
    parser.add_argument(
        "--peer-log2-elements",
        type=int,
        nargs="*",
        default=[24],
        help="where SpikingJelly is measured too; it tunes itself anew for every size (default 24, empty for nowhere)",
    )
    parser.add_argument("--output", type=Path, help="write a JSON record to this file")


def run(arguments: argparse.Namespace) -> int:
    """Checks, measures, prints, and returns 1 when a limit was missed or there is no GPU."""
    if reasons := obstacles(torch.device("cuda", torch.cuda.current_device() if torch.cuda.is_available() else 0)):
        print("\n".join(reasons))
        return 1
    storages = {name: STORAGES[name] for name in arguments.storages}
    for name, storage in storages.items():
        check(name, storage)
    peers = set(arguments.peer_log2_elements) if find_spec("spikingjelly") else set()
    rows = []
    for time_steps in arguments.time_steps:
        for log2 in arguments.log2_elements:
            for name, storage in storages.items():
                rows.append(measure(name, storage, time_steps, log2, arguments.repeats))
                print(told(rows[-1]), flush=True)
                if log2 in peers:
                    rows.append(measure_peer(name, storage, time_steps, log2, arguments.repeats))
                    print(told(rows[-1]), flush=True)
    host = host_times(storages, peers=bool(peers))
    for name, times in host.items():
        print(
            f"host time a call, forward and backward, {name}: " + ", ".join(f"{k} {v:.0f} us" for k, v in times.items())
        )
    limits = missed(rows, host)
    for limit in limits:
        print(f"missed: {limit}")
    if arguments.output is not None:
        results = {"rows": rows, "host_us": host, "missed": limits, "peer": _peer_version() if peers else None}
        write_record(arguments.output, make_record("neuron", results))
    return int(bool(limits))


def check(name: str, storage: torch.dtype | None) -> None:
    """Compares the kernels with plain torch on a small input.

    Raises:
        RuntimeError: spikes or membranes differ at all, or gradients by more than their rounding.
    """
    switches, numbers = encode(_neuron(storage))
    x, grad = _current(33, 5000), torch.randn(33, 5000, device="cuda", dtype=torch.bfloat16)
    asked = (x, None, None, switches, numbers, x.dtype, True, True, True)
    ours, theirs = operators.forward(*asked), plain.forward(*asked)
    if not all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(ours, theirs, strict=True)):
        raise RuntimeError(f"the forward kernel with {name} storage differs from plain torch.")
    rest = (grad, None, None, x, ours[3], None, None, switches, numbers, x.dtype, True, False, False)
    a, b = (backward(*rest)[0].float() for backward in (operators.backward, plain.backward))
    if ((a - b).abs() > 2**-7 * b.abs() + 1e-4 * b.abs().amax(0)).any():
        raise RuntimeError(f"the backward kernel with {name} storage differs from plain torch.")


def measure(name: str, storage: torch.dtype | None, time_steps: int, log2: int, repeats: int) -> dict[str, Any]:
    """Times, bytes and shares of copy bandwidth of our kernels."""
    row = _timed(_layer(storage), time_steps, log2, repeats)
    moved = traffic(torch.bfloat16, storage or torch.float32, time_steps)
    return {"who": "lightning_snnprec", "storage": name, **row, **_shares(row, moved, repeats)}


def measure_peer(name: str, storage: torch.dtype | None, time_steps: int, log2: int, repeats: int) -> dict[str, Any]:
    """Times of SpikingJelly's kernels under the same storage; "default" is what it takes by itself."""
    try:
        row = _timed(_peer_layer(storage, 2**log2 // time_steps), time_steps, log2, repeats)
    except RuntimeError as error:
        row = {"time_steps": time_steps, "log2_elements": log2, "failed": str(error).splitlines()[0]}
    return {"who": "spikingjelly", "storage": name, **row}


def host_times(storages: dict[str, torch.dtype | None], *, peers: bool) -> dict[str, dict[str, float]]:
    """Microseconds of host time of an eager forward and backward on a small input."""
    found = {}
    for name, storage in storages.items():
        layers = {"lightning_snnprec": _layer(storage)}
        if peers:
            layers["spikingjelly"] = _peer_layer(storage, _HOST_ELEMENTS // 4)
        found[name] = {who: _host_time(layer) for who, layer in layers.items()}
    return found


def missed(rows: list[dict[str, Any]], host: dict[str, dict[str, float]]) -> list[str]:
    """The limits that these results miss, one sentence each."""
    found = []
    peers = {(r["time_steps"], r["log2_elements"], r["storage"]): r for r in rows if r["who"] == "spikingjelly"}
    for row in (r for r in rows if r["who"] != "spikingjelly"):
        size = (row["time_steps"], row["log2_elements"])
        label = f"T={size[0]}, 2^{size[1]} elements, {row['storage']} storage"
        if size[1] >= _LARGE and row["share"] < SHARE:
            found.append(f"{label}: {row['share']:.2f} of copy bandwidth, under {SHARE}")
        for storage, least in ((row["storage"], 1.0), *([("fp32", SPEED_UP)] if row["storage"] == "default" else [])):
            peer = peers.get((*size, storage), {})
            if "total_us" in peer and peer["total_us"] < least * row["total_us"]:
                found.append(f"{label}: {peer['total_us'] / row['total_us']:.2f} times as fast as its {storage}")
    for name, times in host.items():
        if "spikingjelly" in times and times["lightning_snnprec"] > HOST_RATIO * times["spikingjelly"]:
            found.append(f"host time with {name} storage is over {HOST_RATIO} of SpikingJelly's")
    return found


def told(row: dict[str, Any]) -> str:
    """A row as a line."""
    label = f"{row['who']:>17}  T={row['time_steps']:<3} 2^{row['log2_elements']} {row['storage']:<13}"
    if "failed" in row:
        return f"{label} failed: {row['failed']}"
    times = f"{row['forward_us']:9.1f} us forward {row['backward_us']:9.1f} us backward"
    if "share" not in row:
        return f"{label} {times}"
    shares = f"share of copy {row['forward_share']:.2f} {row['backward_share']:.2f} {row['share']:.2f}"
    return f"{label} {times}  {shares}  {row['bytes']:.2f} B per neuron and step, {row['kept_bytes']:.2f} kept"


def _neuron(storage: torch.dtype | None) -> Neuron:
    return Neuron("lif", storage=storage)


def _layer(storage: torch.dtype | None) -> Layer:
    neuron = _neuron(storage)
    return lambda x: run_sequence(x, None, neuron)[0]


def _current(time_steps: int, neurons: int) -> Tensor:
    # About a fifth of the neurons fire in a time step.
    return (1.5 * torch.randn(time_steps, neurons, device="cuda") + 0.5).to(torch.bfloat16)


def _timed(layer: Layer, time_steps: int, log2: int, repeats: int) -> dict[str, Any]:
    count = min(max(_FOOTPRINT // 2 ** (log2 + 1), 1), _MOST_INPUTS)
    inputs = [_current(time_steps, 2**log2 // time_steps).requires_grad_() for _ in range(count)]
    grads = [torch.randn_like(x, requires_grad=False) for x in inputs]

    def forward() -> list[Tensor]:
        return [layer(x) for x in inputs]

    def both() -> list[Tensor]:
        spikes = forward()
        return [*spikes, *(torch.autograd.grad(s, x, g)[0] for s, x, g in zip(spikes, inputs, grads, strict=True))]

    rate = layer(inputs[0]).float().mean().item()
    forward_us, total_us = (1e6 / count * graph_time(work, repeats) for work in (forward, both))
    return {
        "time_steps": time_steps,
        "log2_elements": log2,
        "firing_rate": rate,
        "forward_us": forward_us,
        "backward_us": total_us - forward_us,
        "total_us": total_us,
    }


def _shares(row: dict[str, Any], moved: Traffic, repeats: int) -> dict[str, float]:
    """Achieved share of the bandwidth of copies as large as what this layer moves over all its inputs."""
    elements = 2 ** row["log2_elements"]
    bandwidth = copy_bandwidth(2 * _FOOTPRINT, repeats)
    per_us = 1e6 * elements / bandwidth
    return {
        "bytes": moved.forward + moved.backward,
        "kept_bytes": moved.kept,
        "copy_tb_per_s": bandwidth / 1e12,
        "forward_share": moved.forward * per_us / row["forward_us"],
        "backward_share": moved.backward * per_us / row["backward_us"],
        "share": (moved.forward + moved.backward) * per_us / row["total_us"],
    }


def _peer_layer(storage: torch.dtype | None, neurons: int) -> Layer:
    # By name: nothing of this package needs it. Its first membrane is made here, outside of the time.
    functional = importlib.import_module("spikingjelly.activation_based.functional")
    v = torch.zeros(neurons, device="cuda", dtype=storage or torch.float32)
    return lambda x: functional.lif_multi_step(x, v, neuron_storage=storage)[0]


def _host_time(layer: Layer, calls: int = 50, batches: int = 11) -> float:
    x = _current(4, _HOST_ELEMENTS // 4).requires_grad_()
    grad = torch.ones_like(x, requires_grad=False)
    times = []
    for _ in range(batches):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(calls):
            torch.autograd.grad(layer(x), x, grad)
        times.append((time.perf_counter() - start) / calls)
    return 1e6 * statistics.median(times[1:])


def _peer_version() -> str:
    functional = importlib.import_module("spikingjelly.activation_based.functional")
    chosen = functional.neuron_implementation("lif", torch.device("cuda", torch.cuda.current_device()))
    return f"SpikingJelly {version('spikingjelly')}, {chosen['implementation']} by default"
