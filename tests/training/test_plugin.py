import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.callbacks import WeightAveraging
from lightning.pytorch.plugins.precision import MixedPrecision
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import Tensor, nn

from lightning_snnprec import SNNPrecision, SNNSingleDeviceStrategy
from lightning_snnprec.neurons import LIFNode
from lightning_snnprec.precision import PrecisionConfig
from lightning_snnprec.precision.layers import ConvertedLinear
from tests.training.lit import Lit, loader, trainer

FP8 = PrecisionConfig("fp8", fp8_engine="emulated")


def plugin_of(run: Any) -> SNNPrecision:
    assert isinstance(run.precision_plugin, SNNPrecision)
    return run.precision_plugin


@pytest.mark.usefixtures("stub_engine")
@pytest.mark.parametrize("strategy", ["auto", "snn"])
@pytest.mark.parametrize("config", ["fp32", "bf16", "fp16", FP8])
def test_fit_validate_test_predict_in_every_mode(config: Any, strategy: str, tmp_path: Path) -> None:
    lit = Lit()
    run = trainer(tmp_path, max_epochs=10, plugins=SNNPrecision(config), strategy=strategy)
    run.fit(lit, loader(), loader(20))
    assert lit.learned
    run.validate(lit, loader(20))
    run.test(lit, loader(20))
    assert [tuple(p.shape) for p in run.predict(lit, loader(20))] == [(10, 3), (10, 3)]
    assert run.global_step == 40


def test_the_model_moves_and_converts_before_the_optimizer_is_made(stub_engine: None, tmp_path: Path) -> None:
    seen: list[type] = []

    class Watching(Lit):
        def configure_optimizers(self) -> Any:
            seen.append(type(self.net[0]))  # type: ignore[index]
            return super().configure_optimizers()

    trainer(tmp_path, max_steps=1, plugins=SNNPrecision(FP8)).fit(Watching(), loader())
    assert seen == [ConvertedLinear]


def test_an_optimizer_made_too_early_trains(stub_engine: None, tmp_path: Path) -> None:
    class Early(Lit):
        def __init__(self) -> None:
            super().__init__()
            self.early = torch.optim.SGD(self.parameters(), lr=0.1)

        def configure_optimizers(self) -> Any:
            return self.early

    lit = Early()
    before = lit.net[0].weight.detach().clone()  # type: ignore[index]
    trainer(tmp_path, max_steps=2, plugins=SNNPrecision(FP8)).fit(lit, loader())
    assert not torch.equal(lit.net[0].weight, before)  # type: ignore[index]


def test_an_optimizer_of_parameters_that_are_gone_is_named(tmp_path: Path) -> None:
    class Orphan(Lit):
        def __init__(self) -> None:
            super().__init__()
            self.early = torch.optim.SGD(self.parameters(), lr=0.1)
            self.net[2] = nn.Linear(16, 3)  # type: ignore[index]

        def configure_optimizers(self) -> Any:
            return self.early

    with pytest.raises(RuntimeError, match=r"SGD holds parameters .* group 0, parameter 2 of shape \(3, 16\)"):
        trainer(tmp_path, max_steps=2, plugins=SNNPrecision("bf16")).fit(Orphan(), loader())


@pytest.mark.parametrize("strategy", ["auto", "snn"])
def test_precision_argument_and_plugin_contradict_each_other(strategy: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="Received both `precision=bf16-mixed` and `plugins="):
        trainer(tmp_path, precision="bf16-mixed", plugins=SNNPrecision("fp16"), strategy=strategy)


def test_precision_argument_and_the_strategys_plugin_contradict_each_other(tmp_path: Path) -> None:
    strategy = SNNSingleDeviceStrategy(precision_plugin=SNNPrecision("fp16"))
    with pytest.raises(RuntimeError, match="leave precision= out"):
        trainer(tmp_path, precision="bf16-mixed", strategy=strategy, max_steps=1).fit(Lit(), loader())


def test_plugin_beside_or_inside_our_strategy(tmp_path: Path) -> None:
    for arguments in (
        {"strategy": SNNSingleDeviceStrategy(), "plugins": SNNPrecision("fp16")},
        {"strategy": SNNSingleDeviceStrategy(precision_plugin=SNNPrecision("fp16"))},
    ):
        run = trainer(tmp_path, max_steps=1, **arguments)
        run.fit(Lit(), loader())
        assert plugin_of(run).artifacts.config.mode == "fp16"


def test_a_plugin_in_two_trainers_keeps_their_state_apart(tmp_path: Path) -> None:
    plugin = SNNPrecision("fp16", loss_scale={"init": 8.0})
    runs = [trainer(tmp_path, max_steps=3, plugins=plugin) for _ in range(2)]
    modules = [Lit(), Lit()]
    modules[0].damage = {0: float("inf")}
    for run, module in zip(runs, modules, strict=True):
        run.fit(module, loader())
    assert [plugin_of(run).skipped_steps for run in runs] == [1, 0]
    assert [run.scaler.get_scale() for run in runs if run.scaler is not None] == [4.0, 8.0]
    assert plugin_of(runs[0]).artifacts.model is modules[0]
    assert plugin_of(runs[1]).artifacts.model is modules[1]
    runs[0].validate(modules[0], loader())
    assert plugin_of(runs[0]).skipped_steps == 1


def test_fit_twice_goes_on(stub_engine: None, tmp_path: Path) -> None:
    lit = Lit()
    run = trainer(tmp_path, max_epochs=1, plugins=SNNPrecision(FP8))
    run.fit(lit, loader())
    engine = plugin_of(run).artifacts.engine
    callbacks = list(run.callbacks)
    run.fit_loop.max_epochs = 2
    run.fit(lit, loader())
    assert plugin_of(run).artifacts.engine is engine
    assert run.callbacks == callbacks
    assert run.global_step == 8


@pytest.mark.parametrize("first", ["validate", "test", "predict"])
@pytest.mark.parametrize("stateful", [False, True])
def test_evaluation_before_fit_leaves_nothing_that_breaks_training(first: str, stateful: bool, tmp_path: Path) -> None:
    """A membrane written under inference mode must not reach autograd (field report A28)."""
    lit = Lit(net=nn.Sequential(nn.Linear(16, 16), LIFNode(stateful=stateful), nn.Linear(16, 3)))
    run = trainer(tmp_path, max_epochs=10, plugins=SNNPrecision("bf16"), num_sanity_val_steps=0)
    getattr(run, first)(lit, loader())
    run.fit(lit, loader())
    assert lit.learned


def test_evaluation_leaves_the_state_that_training_carries(tmp_path: Path) -> None:
    lit = Lit(net=nn.Sequential(nn.Linear(16, 16), LIFNode(stateful=True), nn.Linear(16, 3)))
    run = trainer(tmp_path, max_epochs=1, plugins=SNNPrecision("fp32"))
    run.fit(lit, loader())
    node = lit.net[1]  # type: ignore[index]
    carried = node.v.detach().clone()
    run.validate(lit, loader(28, batch_size=7))
    run.predict(lit, loader(28, batch_size=7))
    assert torch.equal(node.v, carried)


def test_single_step_neurons_begin_each_batch_at_rest(tmp_path: Path) -> None:
    """The last batch is smaller, and T changes between calls (field report A15)."""

    class Stepping(Lit):
        def forward(self, x: Tensor) -> Tensor:
            steps = 4 if self.training else 3
            return torch.stack([self.net(x) for _ in range(steps)]).float().mean(0)

    lit = Stepping(net=nn.Sequential(nn.Linear(16, 16), LIFNode(step_mode="s"), nn.Linear(16, 3)))
    run = trainer(tmp_path, max_epochs=2, plugins=SNNPrecision("bf16"))
    run.fit(lit, loader(37, batch_size=16), loader(11, batch_size=8))
    run.predict(lit, loader(9, batch_size=8))
    assert len(lit.losses) == 6


def test_a_changed_batch_under_carried_state_names_both_shapes(tmp_path: Path) -> None:
    lit = Lit(net=nn.Sequential(nn.Linear(16, 16), LIFNode(stateful=True), nn.Linear(16, 3)))
    run = trainer(tmp_path, max_epochs=1, plugins=SNNPrecision("fp32"))
    with pytest.raises(ValueError, match=r"(?s)(5, 16).*(16, 16)|(16, 16).*(5, 16)"):
        run.fit(lit, loader(37, batch_size=16))


def test_spikingjelly_neurons_begin_each_batch_at_rest(tmp_path: Path) -> None:
    neuron = pytest.importorskip("spikingjelly.activation_based.neuron", reason="spikingjelly is not installed")
    lit = Lit(net=nn.Sequential(nn.Linear(16, 16), neuron.LIFNode(step_mode="m"), nn.Linear(16, 3)))
    run = trainer(tmp_path, max_epochs=2, plugins=SNNPrecision("bf16"))
    run.fit(lit, loader(37, batch_size=16), loader(11, batch_size=8))
    assert len(lit.losses) == 6
    assert plugin_of(run).artifacts.describe()["neurons"]["left_alone"] == ["net.1"]


@pytest.mark.parametrize("algorithm", ["norm", "value"])
@pytest.mark.parametrize("fused", [False, True])
def test_clipping_in_automatic_optimisation_sees_true_gradients(algorithm: str, fused: bool, tmp_path: Path) -> None:
    final = {}
    for mode in ("fp32", "fp16"):
        torch.manual_seed(0)

        class Clipped(Lit):
            def configure_optimizers(self) -> Any:
                return torch.optim.SGD(self.parameters(), lr=0.5, fused=fused)

            def forward(self, x: Tensor) -> Tensor:
                return nn.functional.linear(x.float(), self.net[2].weight.float())  # type: ignore[index]

        lit = Clipped()
        run = trainer(
            tmp_path,
            max_epochs=1,
            plugins=SNNPrecision(mode, **({"loss_scale": {"init": 256.0}} if mode == "fp16" else {})),
            gradient_clip_val=0.05,
            gradient_clip_algorithm=algorithm,
            accumulate_grad_batches=2,
        )
        run.fit(lit, loader())
        assert plugin_of(run).skipped_steps == 0
        final[mode] = lit.net[2].weight.detach()  # type: ignore[index]
    torch.testing.assert_close(final["fp16"], final["fp32"], rtol=1e-2, atol=1e-3)


@pytest.mark.filterwarnings("ignore:`training_step` returned `None`")
def test_closure_result_none_skips_the_step(tmp_path: Path) -> None:
    class Refusing(Lit):
        def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor | None:  # type: ignore[override]
            return None if batch_idx == 1 else super().training_step(batch, batch_idx)

    lit = Refusing()
    run = trainer(tmp_path, max_epochs=1, plugins=SNNPrecision("fp16"))
    run.fit(lit, loader())
    assert len(lit.losses) == 3
    assert plugin_of(run).skipped_steps == 0


def test_lbfgs_and_a_grad_scaler_do_not_go_together(tmp_path: Path) -> None:
    class Quasi(Lit):
        def configure_optimizers(self) -> Any:
            return torch.optim.LBFGS(self.parameters())

    with pytest.raises(RuntimeError, match="LBFGS evaluates the loss several times"):
        trainer(tmp_path, max_steps=1, plugins=SNNPrecision("fp16")).fit(Quasi(), loader())
    trainer(tmp_path, max_steps=1, plugins=SNNPrecision("bf16")).fit(Quasi(), loader())


@pytest.mark.usefixtures("stub_engine")
@pytest.mark.parametrize("config", ["fp16", FP8])
def test_a_compiled_module_trains(config: Any, tmp_path: Path) -> None:
    lit = Lit()
    lit.net = torch.compile(lit.net, backend="eager")  # type: ignore[assignment]
    run = trainer(tmp_path, max_epochs=10, plugins=SNNPrecision(config))
    run.fit(lit, loader())
    assert lit.learned


@pytest.mark.usefixtures("stub_engine")
def test_copies_and_weight_averaging_after_steps(tmp_path: Path) -> None:
    lit = Lit(net=nn.Sequential(nn.Linear(16, 16), LIFNode(stateful=True), nn.Linear(16, 3)))
    run = trainer(tmp_path, max_epochs=10, plugins=SNNPrecision(FP8), callbacks=[WeightAveraging()])
    run.fit(lit, loader(60))
    twin = copy.deepcopy(lit.net)
    assert torch.equal(pickle.loads(pickle.dumps(lit.net))[0].weight, twin[0].weight)  # type: ignore[index]
    assert lit.learned


def test_the_scaler_of_lightnings_mixed_precision_is_taken_over(tmp_path: Path) -> None:
    lit = Lit()
    theirs = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=32.0))
    run = trainer(tmp_path, max_steps=2, plugins=theirs)
    run.fit(lit, loader())
    run.save_checkpoint(tmp_path / "theirs.ckpt")
    ours = trainer(tmp_path, max_steps=3, plugins=SNNPrecision("fp16"))
    ours.fit(Lit(), loader(), ckpt_path=tmp_path / "theirs.ckpt")
    assert ours.scaler is not None
    assert ours.scaler.get_scale() == 32.0


@pytest.mark.parametrize("mode", ["fp32", "bf16", "fp16"])
def test_a_checkpoint_loads_plainly_and_resumes(mode: str, tmp_path: Path) -> None:
    """Nothing in it needs pickle (field report A01)."""
    path = tmp_path / "run.ckpt"
    run = trainer(tmp_path, max_steps=3, plugins=SNNPrecision(mode))
    run.fit(Lit(), loader())
    run.save_checkpoint(path)
    assert torch.load(path, weights_only=True)["SNNPrecision"]["config"]["mode"] == mode
    again = trainer(tmp_path, max_steps=5, plugins=SNNPrecision(mode))
    lit = Lit()
    again.fit(lit, loader(), ckpt_path=path)
    assert again.global_step == 5
    again.test(lit, loader(), ckpt_path=path)


def test_changed_constants_are_told_when_testing_a_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "run.ckpt"
    run = trainer(tmp_path, max_steps=1, plugins=SNNPrecision("bf16"))
    run.fit(Lit(), loader())
    run.save_checkpoint(path)
    other = Lit(net=nn.Sequential(nn.Linear(16, 16), LIFNode(v_threshold=0.7), nn.Linear(16, 3)))
    with pytest.warns(UserWarning, match=r"net.1.v_threshold was 1.0 when saved and is 0.7 now"):
        trainer(tmp_path, plugins=SNNPrecision("bf16")).test(other, loader(), ckpt_path=path)


def test_other_strategies_are_refused_by_name(tmp_path: Path) -> None:
    run = trainer(tmp_path, plugins=SNNPrecision("bf16"))
    lit = Lit()
    lit.trainer = run
    run._accelerator_connector.strategy = ModelParallelStrategy()
    with pytest.raises(RuntimeError, match="ModelParallelStrategy takes Lightning's own precision only"):
        SNNPrecision("bf16").convert_module(lit)


def test_fields_and_config_given_together() -> None:
    assert SNNPrecision("fp8", fp8_recipe="current").config.fp8_recipe == "current"
    assert SNNPrecision(mode="fp16").config.mode == "fp16"
    assert SNNPrecision({"mode": "fp8"}, margin=1).config.margin == 1
    assert SNNPrecision(PrecisionConfig("fp16"), loss_scale={"init": 2.0}).config.loss_scale.init == 2.0
    with pytest.raises(ValueError, match="mode is given twice, as 'fp8' and as 'fp16'"):
        SNNPrecision("fp8", mode="fp16")
    for given in (PrecisionConfig("fp16"), {"mode": "fp16"}):
        with pytest.raises(ValueError, match="mode is given twice, as 'fp16' and as 'bf16'"):
            SNNPrecision(given, mode="bf16")
    with pytest.raises(ValueError, match="mode=''"):
        SNNPrecision("", loss_scale={})
    with pytest.raises(ValueError, match="unknown field 'recipe'"):
        SNNPrecision("fp8", recipe="current")
    with pytest.raises(RuntimeError, match="has prepared no model yet"):
        _ = SNNPrecision("fp8").artifacts


def test_evaluation_begins_at_rest_on_each_dataloader(tmp_path: Path) -> None:
    class Several(Lit):
        def validation_step(self, batch: list[Tensor], batch_idx: int, dataloader_idx: int = 0) -> None:
            super().validation_step(batch, batch_idx)

    lit = Several(net=nn.Sequential(nn.Linear(16, 16), LIFNode(stateful=True, tau=100.0), nn.Linear(16, 3)))
    run = trainer(tmp_path, plugins=SNNPrecision("fp32"))
    (first, second) = run.validate(lit, [loader(20), loader(20)])
    assert list(first.values()) == list(second.values())
    run.validate(lit, [loader(20, batch_size=10), loader(21, batch_size=7)])


def test_a_closure_that_is_evaluated_several_times_starts_from_the_same_membrane(tmp_path: Path) -> None:
    starts: list[list[float]] = []

    class Quasi(Lit):
        def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
            if batch_idx >= len(starts):
                starts.append([])
            v = self.net[1].v  # type: ignore[index]
            starts[batch_idx].append(float(v.sum()) if isinstance(v, Tensor) else float(v))
            return super().training_step(batch, batch_idx)

        def configure_optimizers(self) -> Any:
            return torch.optim.LBFGS(self.parameters(), max_iter=4, lr=1e-3)

    lit = Quasi(net=nn.Sequential(nn.Linear(16, 16), LIFNode(stateful=True), nn.Linear(16, 3)))
    trainer(tmp_path, max_epochs=1, plugins=SNNPrecision("fp32")).fit(lit, loader())
    assert [len(set(batch)) for batch in starts] == [1] * 4
    assert all(len(batch) > 1 for batch in starts)
    assert len({batch[0] for batch in starts}) == 4


def test_a_subclass_takes_over_its_parents_state(tmp_path: Path) -> None:
    class Mine(SNNPrecision):
        pass

    run = trainer(tmp_path, max_steps=2, plugins=SNNPrecision("fp16", loss_scale={"init": 8.0}))
    run.fit(Lit(), loader())
    run.save_checkpoint(tmp_path / "parent.ckpt")
    mine = trainer(tmp_path, max_steps=3, plugins=Mine("fp16"))
    mine.fit(Lit(), loader(), ckpt_path=tmp_path / "parent.ckpt")
    assert mine.scaler is not None
    assert mine.scaler.get_scale() == 8.0


def test_fabric_is_told_what_to_call() -> None:
    with pytest.raises(TypeError, match=r"with Fabric or a loop of your own, call lightning_snnprec.prepare_model"):
        SNNPrecision("bf16").convert_module(nn.Linear(2, 2))


@pytest.mark.usefixtures("stub_engine")
@pytest.mark.parametrize("config", ["bf16", "fp16", FP8])
@pytest.mark.parametrize("plain", [False, True])
def test_a_forward_after_a_step_sees_the_new_weights(config: Any, plain: bool, tmp_path: Path) -> None:
    """Autocast caches casts of weights for the time of its context, which spans a whole manual training step."""
    outputs: list[float] = []

    class Gan(Lit):
        def __init__(self) -> None:
            super().__init__(net=nn.Linear(1, 1, bias=False))
            self.automatic_optimization = False
            nn.init.ones_(self.net.weight)

        def training_step(self, batch: list[Tensor], batch_idx: int) -> None:  # type: ignore[override]
            optimizer: Any = self.optimizers()
            x = torch.ones(1, 1)
            for _ in range(2):
                output = self.net(x)
                outputs.append(output.item())
                self.manual_backward(output.float().sum())
                if plain and config != "fp16":
                    optimizer.optimizer.step()
                else:
                    optimizer.step()
                optimizer.zero_grad()
            outputs.append(self.net(x).item())

    scale = {"loss_scale": {"init": 8.0}} if config == "fp16" else {}
    run = trainer(tmp_path, max_steps=2, max_epochs=1, limit_train_batches=1, plugins=SNNPrecision(config, **scale))
    run.fit(Gan(), loader())
    assert outputs == [1.0, 0.5, 0.0]


def test_a_plugin_prints_its_mode() -> None:
    assert repr(SNNPrecision("fp16")) == "SNNPrecision('fp16')"


def test_a_resumed_run_carries_the_membrane_on(tmp_path: Path) -> None:
    """Field report A16: saved mid-epoch with a batch of 10; evaluated with 8; resumed with 10."""

    def stateful() -> Lit:
        return Lit(net=nn.Sequential(nn.Linear(16, 16), LIFNode(stateful=True), nn.Linear(16, 3)))

    path = tmp_path / "mid.ckpt"
    lit = stateful()
    run = trainer(tmp_path, max_steps=3, plugins=SNNPrecision("fp32"))
    run.fit(lit, loader())
    run.save_checkpoint(path)
    carried = lit.net[1].v.detach().clone()  # type: ignore[index,union-attr]
    trainer(tmp_path, plugins=SNNPrecision("fp32")).predict(stateful(), loader(16, batch_size=8), ckpt_path=path)
    seen: list[Tensor] = []

    class Watching(Lit):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            seen.append(self.net[1].v.detach().clone())  # type: ignore[index,union-attr]

    again = Watching(net=stateful().net)
    trainer(tmp_path, max_steps=4, plugins=SNNPrecision("fp32")).fit(again, loader(), ckpt_path=path)
    assert torch.equal(seen[0], carried)
