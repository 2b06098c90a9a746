from __future__ import annotations

import copy
import math
import pickle
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from lightning_snnprec.models import FCSNN
from lightning_snnprec.neurons import IFNode, LIFNode, reset_net
from lightning_snnprec.telemetry import FiringRate


def _net() -> FCSNN:
    return FCSNN(13, (31, 17), 5, v_threshold=0.3, init_gain=4.0)


def _spikes(net: FCSNN, x_TBF: Tensor) -> dict[str, Tensor]:
    """Outputs of the neurons, found by running the layers one after the other."""
    spikes = {}
    with torch.no_grad():
        for name, layer in net.body.named_children():
            x_TBF = layer(x_TBF)
            if isinstance(layer, LIFNode):
                spikes[f"body.{name}"] = x_TBF
    return spikes


def _count(rate: FiringRate, net: FCSNN, x_TBF: Tensor) -> None:
    with rate.watch(net):
        net(x_TBF)


def test_rates_are_spikes_per_neuron_and_step_over_all_batches() -> None:
    net = _net()
    batches = [torch.rand(6, n, 13) for n in (7, 1, 4)]
    rate = FiringRate(net)
    assert rate.layers == ("body.spike1", "body.spike2")
    spikes: dict[str, list[Tensor]] = {name: [] for name in rate.layers}
    for x_TBF in batches:
        _count(rate, net, x_TBF)
        for name, outputs in _spikes(net, x_TBF).items():
            spikes[name].append(outputs.flatten())
    rates = rate.compute()
    assert list(rates.layers) == list(rate.layers)
    for name, outputs in spikes.items():
        assert 0 < rates.layers[name] < 1
        torch.testing.assert_close(rates.layers[name], torch.cat(outputs).mean())
    everything = torch.cat([torch.cat(outputs) for outputs in spikes.values()])
    torch.testing.assert_close(rates.overall, everything.mean())


def test_counts_stay_exact_beyond_fp32() -> None:
    rate = FiringRate(_net())
    odd = 2**24 + 1
    rate.update(torch.tensor([odd, 0]), torch.tensor([odd, 3]))
    rate.update(torch.tensor([odd, 1]), torch.tensor([odd, 3]))
    assert rate.spikes.tolist() == [2 * odd, 1]
    assert rate.compute().layers["body.spike1"] == 1.0


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_low_precision_spikes_are_counted_as_they_are(dtype: torch.dtype) -> None:
    node = IFNode(v_threshold=0.5)
    rate = FiringRate(node)
    with rate.watch(node):
        spikes = node(torch.rand(5, 401, 3).to(dtype))
    assert spikes.dtype == dtype
    assert rate.outputs.tolist() == [5 * 401 * 3]
    assert rate.spikes.tolist() == [int(spikes.double().sum())]


def test_single_steps_add_up() -> None:
    node = LIFNode(v_threshold=0.3, step_mode="s")
    rate = FiringRate(node)
    x_TBN = torch.rand(6, 4, 5)
    with rate.watch(node):
        spikes = torch.stack([node(x_BN) for x_BN in x_TBN])
    torch.testing.assert_close(rate.compute().overall, spikes.mean())
    reset_net(node)


def test_hooks_are_gone_after_the_context_and_after_an_error() -> None:
    net = _net()
    rate = FiringRate(net)
    _count(rate, net, torch.rand(2, 3, 13))
    before = rate.outputs.clone()
    with pytest.raises(ValueError, match="in_features=13"):
        _count(rate, net, torch.rand(2, 3, 14))
    assert torch.equal(rate.outputs, before)
    assert all(len(module._forward_hooks) == 0 for module in net.modules())
    net(torch.rand(2, 3, 13))
    assert torch.equal(rate.outputs, before)
    for twin in (copy.deepcopy((net, rate)), pickle.loads(pickle.dumps((net, rate)))):
        assert torch.equal(twin[1].compute().overall, rate.compute().overall)


def test_the_metric_holds_no_module_of_the_network() -> None:
    net = nn.Module()
    net.model = _net()
    keys = list(net.state_dict())
    net.rate = FiringRate(net.model)
    assert list(net.state_dict()) == keys
    assert [name for name, _ in net.rate.named_modules()] == [""]


def test_nothing_counted_is_nan_and_reset_forgets() -> None:
    net = _net()
    rate = FiringRate(net)
    _count(rate, net, torch.rand(4, 0, 13))
    assert math.isnan(rate.compute().overall)
    _count(rate, net, torch.rand(4, 2, 13))
    rate.reset()
    assert rate.outputs.tolist() == [0, 0]
    _count(rate, net, torch.rand(4, 3, 13))
    assert rate.outputs.tolist() == [4 * 3 * 31, 4 * 3 * 17]


def test_a_network_without_our_neurons_has_no_layers() -> None:
    net = nn.Linear(3, 2)
    rate = FiringRate(net)
    with rate.watch(net):
        net(torch.rand(5, 3))
    assert rate.layers == ()


def test_another_network_is_refused() -> None:
    rate = FiringRate(_net())
    with (
        pytest.raises(ValueError, match=r"made for neurons \['body.spike1', 'body.spike2'\], but .*\['body.spike1'\]"),
        rate.watch(FCSNN(13, (31,), 5)),
    ):
        pass


def test_counts_in_inference_mode_and_outside_add_up() -> None:
    net = _net()
    rate = FiringRate(net)
    with torch.inference_mode():
        rate.reset()
        _count(rate, net, torch.rand(4, 2, 13))
    _count(rate, net, torch.rand(4, 3, 13))
    assert rate.outputs.tolist() == [4 * 5 * 31, 4 * 5 * 17]


def test_counting_reads_nothing_back_from_the_device() -> None:
    # A meta tensor has no values: reading one back to the host raises.
    net = _net().to("meta")
    rate = FiringRate(net).to("meta")
    _count(rate, net, torch.empty(4, 3, 13, device="meta"))
    assert rate.outputs.shape == (2,)
    with pytest.raises((NotImplementedError, RuntimeError), match="meta"):
        rate.compute().overall.item()


def test_counting_keeps_the_gradient() -> None:
    net, plain = _net(), _net()
    plain.load_state_dict(net.state_dict())
    x_TBF = torch.rand(4, 3, 13)
    rate = FiringRate(net)
    with rate.watch(net):
        net(x_TBF).sum().backward()
    plain(x_TBF).sum().backward()
    for ours, expected in zip(net.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours.grad, expected.grad)
    assert not rate.spikes.requires_grad


def _rank(rank: int, store: str, samples: list[int], seed: int, out: str) -> None:
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", f"file://{store}", rank=rank, world_size=len(samples))
    torch.manual_seed(seed)
    net, batches = _net(), [torch.rand(3, n, 13) for n in samples]
    rate = FiringRate(net)
    _count(rate, net, batches[rank])
    rates = rate.compute()
    torch.save({"overall": rates.overall, **rates.layers}, f"{out}/{rank}.pt")
    torch.distributed.destroy_process_group()


def test_ranks_add_their_counts(tmp_path: Path, seed: int) -> None:
    samples = [9, 2]
    arguments = (str(tmp_path / "store"), samples, seed, str(tmp_path))
    torch.multiprocessing.spawn(_rank, arguments, nprocs=len(samples))
    torch.manual_seed(seed)
    net, batches = _net(), [torch.rand(3, n, 13) for n in samples]
    rate = FiringRate(net)
    for x_TBF in batches:
        _count(rate, net, x_TBF)
    expected = {"overall": rate.compute().overall, **rate.compute().layers}
    for rank in range(len(samples)):
        assert torch.load(tmp_path / f"{rank}.pt", weights_only=True) == expected
