from dataclasses import replace

import pytest

from lightning_snnprec.precision import Facts, PrecisionConfig, device_profile, probe, refusals
from lightning_snnprec.precision.engines import ENGINES
from lightning_snnprec.precision.engines.traits import resolve_recipe

GPU = Facts("cuda:0", "a GPU", (9, 0), "13.0", {"triton": "3.6.0", "transformer_engine": "2.20.2"})


@pytest.fixture(autouse=True)
def all_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("te", "native", "emulated"):
        monkeypatch.setitem(ENGINES, name, "tests.stub_engine:StubEngine")


@pytest.mark.parametrize(
    ("capability", "recipe", "refused"),
    [
        ((8, 0), "delayed", "needs compute capability 8.9; this GPU is 8.0"),
        ((8, 6), "auto", "use mode='bf16' or 'fp16'"),
        ((8, 9), "delayed", None),
        ((8, 9), "block", "needs compute capability 9.0; this GPU is 8.9 (a GPU); use 'delayed' or 'current'"),
        ((9, 0), "block", None),
        ((9, 0), "mxfp8", "needs compute capability 10.0 or newer, below 12.0; this GPU is 9.0"),
        ((9, 0), "nvfp4", "use 'delayed' or 'current' or 'block'"),
        ((10, 0), "nvfp4", None),
        ((12, 0), "mxfp8", "below 12.0"),
        ((12, 0), "auto", None),
    ],
)
def test_recipes_by_compute_capability(capability: tuple[int, int], recipe: str, refused: str | None) -> None:
    reasons = refusals(
        PrecisionConfig.from_any({"mode": "fp8", "fp8_recipe": recipe}), replace(GPU, capability=capability)
    )
    assert len(reasons) == (refused is not None)
    assert refused is None or refused in reasons[0]


def test_auto_is_the_engines_default_on_that_device() -> None:
    assert [resolve_recipe("te", "auto", capability) for capability in ((9, 0), (10, 0), (12, 0), None)] == [
        "delayed",
        "mxfp8",
        "current",
        "delayed",
    ]
    assert resolve_recipe("native", "auto", (10, 0)) == "delayed"
    assert resolve_recipe("te", "block", (9, 0)) == "block"


def test_all_that_is_missing_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(ENGINES, "te")
    bare = replace(GPU, capability=(8, 0), cuda="12.4", libraries={"triton": None, "transformer_engine": None})
    reasons = refusals(PrecisionConfig("fp8", fp8_recipe="block"), bare)
    assert len(reasons) == 4
    assert "not part of this version" in reasons[0]
    assert "pip install 'lightning-snnprec[fp8]'" in reasons[1]
    assert "needs compute capability 9.0" in reasons[2]
    assert "needs CUDA 12.9" in reasons[3]


def test_an_old_library_is_refused_by_version() -> None:
    old = replace(GPU, libraries={"triton": "3.6.0", "transformer_engine": "2.9.1"})
    assert "needs transformer_engine >= 2.16; installed is 2.9.1" in refusals(PrecisionConfig("fp8"), old)[0]


def test_the_simulation_runs_anywhere() -> None:
    config = PrecisionConfig("fp8", fp8_engine="emulated", fp8_recipe="nvfp4")
    assert refusals(config, probe("cpu")) == ()


def test_16_bit_modes_run_on_a_cpu_and_fp8_says_why_not() -> None:
    for mode in ("bf16", "fp16", "fp32"):
        assert refusals(PrecisionConfig.from_any(mode), probe("cpu")) == ()
    assert any("needs a CUDA device" in reason for reason in refusals(PrecisionConfig("fp8"), probe("cpu")))


def test_a_device_that_is_not_there_is_refused() -> None:
    assert "99" in refusals(PrecisionConfig("bf16"), probe("cuda:99"))[0]


def test_profiles() -> None:
    assert device_profile("H200").capability == (9, 0)
    assert ("compute capability", "9.0") in device_profile("h200").lines()
    assert refusals(PrecisionConfig("fp8"), device_profile("h200")) == ()
    assert "8.0" in refusals(PrecisionConfig("fp8"), device_profile("a100"))[0]
    with pytest.raises(ValueError, match="device='h20' is not a known profile; use one of cpu, a100"):
        device_profile("h20")


def test_low_precision_neurons_are_refused_at_preparation_for_now() -> None:
    reasons = refusals(PrecisionConfig("bf16", neuron_storage="bf16"), probe("cpu"))
    assert len(reasons) == 1
    assert "neuron_storage='bf16'" in reasons[0]
    assert refusals(PrecisionConfig("bf16", neuron_storage="fp32"), probe("cpu")) == ()
