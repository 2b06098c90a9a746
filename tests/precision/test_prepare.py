import pytest
import torch
from torch import nn

from lightning_snnprec import prepare_model_for_precision
from lightning_snnprec.precision import PrecisionConfig
from tests.precision.models import spiking_net


def test_fp8_that_cannot_run_raises_once_with_all_reasons_and_changes_nothing() -> None:
    net = spiking_net()
    before = [(type(module), len(module._forward_pre_hooks)) for module in net.modules()]
    with pytest.raises(RuntimeError, match="mode='fp8' cannot run here") as caught:
        prepare_model_for_precision(net, "cpu", "fp8")
    assert "needs a CUDA device" in str(caught.value)
    assert [(type(module), len(module._forward_pre_hooks)) for module in net.modules()] == before


@pytest.mark.usefixtures("stub_engine")
def test_fp8_that_would_convert_nothing_is_an_error() -> None:
    config = PrecisionConfig("fp8", fp8_engine="emulated")
    with pytest.raises(RuntimeError, match=r"would convert no layer .*\n  - the model has no layer with a GEMM"):
        prepare_model_for_precision(nn.Sequential(nn.ReLU()), "cpu", config)
    net = nn.Sequential(nn.Conv2d(3, 4, 3))
    with pytest.raises(RuntimeError, match=r"0 \(Conv2d\): no FP8 engine computes this kind of layer"):
        prepare_model_for_precision(net, "cpu", config)


def test_wrapped_meta_and_foreign_objects_are_refused() -> None:
    with pytest.raises(TypeError, match=r"torch\.nn\.Module, got int"):
        prepare_model_for_precision(3, "cpu")  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match=r"wrapped in DataParallel; prepare the plain model first"):
        prepare_model_for_precision(nn.DataParallel(nn.Linear(2, 2)), "cpu")
    with pytest.raises(RuntimeError, match="meta device have no values to prepare: weight, bias"):
        prepare_model_for_precision(nn.Linear(2, 2, device="meta"), "cpu")
    with pytest.raises(RuntimeError, match="meta device have no values to prepare: running_mean"):
        prepare_model_for_precision(nn.BatchNorm1d(2, affine=False, device="meta"), "cpu")


@pytest.mark.parametrize("device", ["meta", "xpu", "mps"])
def test_devices_that_are_not_here_are_refused_before_the_model_moves(device: str) -> None:
    net = spiking_net()
    with pytest.raises(RuntimeError, match=f"device {device}"):
        prepare_model_for_precision(net, device, "bf16")
    assert next(net.parameters()).device.type == "cpu"


@pytest.mark.parametrize("mode", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float64])
def test_spikes_that_are_no_floats_are_cast_where_they_are_multiplied(mode: str, dtype: torch.dtype) -> None:
    net = spiking_net(16)
    spikes = (torch.rand(3, 5, 16) > 0.5).to(dtype)
    artifacts = prepare_model_for_precision(net, "cpu", mode)
    with artifacts.autocast_context():
        assert torch.equal(net(spikes), net(spikes.float()))


def test_token_ids_and_double_models_are_left_alone() -> None:
    net = nn.Sequential(nn.Embedding(10, 4), nn.Linear(4, 4)).double()
    prepare_model_for_precision(net, "cpu", "fp32")
    ids = torch.randint(0, 10, (3, 7))
    assert net(ids).dtype == torch.float64
