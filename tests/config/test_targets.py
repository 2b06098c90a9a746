"""What a recipe may name as `_target_`, and which arguments it may give."""

from __future__ import annotations

from typing import Any

import pytest

from lightning_snnprec.config.errors import UserError
from lightning_snnprec.config.targets import check_targets


def fault(node: dict[str, Any], *, allow_any: bool = False) -> str:
    with pytest.raises(UserError) as caught:
        check_targets({"part": node}, allow_any=allow_any)
    return str(caught.value)


@pytest.mark.parametrize(
    "node",
    [
        {"_target_": "torch.nn.Linear", "in_features": 3, "out_features": 5},
        {"_target_": "torch.optim.AdamW", "_partial_": True, "lr": 1, "betas": [0.9, 0.99], "fused": None},
        {"_target_": "lightning.pytorch.Trainer", "max_epochs": 3, "limit_val_batches": 0.5, "logger": False},
        {"_target_": "lightning_snnprec.training.module.default_optimizer", "_partial_": True},
        {"_target_": "lightning_snnprec.models.FCSNN", "in_features": 1, "hidden": [2], "num_classes": 2, "tau": 2.0},
    ],
)
def test_classes_of_the_allowed_packages_pass(node: dict[str, Any]) -> None:
    check_targets({"part": node}, allow_any=False)


@pytest.mark.parametrize(
    "path",
    [
        "os.system",
        "torch.os.system",
        "torch.hub.load",
        "torch.load",
        "torch.utils.data.dataloader.os.system",
        "torch.nn.functional.relu",
        "torch.nn.modules.module.functools.partial",
        "lightning.pytorch.trainer.trainer.os.remove",
        "lightning_snnprec.config.stored.os.remove",
        "lightning_snnprec.config.stored.Path",
        "subprocess.Popen",
        "builtins.eval",
    ],
)
def test_anything_else_is_refused_by_name(path: str) -> None:
    told = fault({"_target_": path})
    assert f"part._target_={path!r} is not a class of" in told
    assert "allow_any_target=true" in told


@pytest.mark.parametrize(
    "path", ["torch.nn.Linear.__init__.__globals__", "torch.nn..Linear", "torch.nn.Linear.forward"]
)
def test_paths_into_an_object_are_refused(path: str) -> None:
    assert "part._target_=" in fault({"_target_": path})


def test_permission_lifts_the_origin_and_nothing_else() -> None:
    check_targets({"part": {"_target_": "collections.OrderedDict"}}, allow_any=True)
    assert "has no argument 'maxsiz'; did you mean 'maxsize'?" in fault(
        {"_target_": "queue.Queue", "maxsiz": 3}, allow_any=True
    )


def test_a_name_that_does_not_exist_gets_a_near_one() -> None:
    assert "torch.nn has no 'Linaer'; did you mean 'Linear'?" in fault({"_target_": "torch.nn.Linaer"})
    assert "cannot be found" in fault({"_target_": "no_such_package.Thing"}, allow_any=True)


def test_every_fault_is_told_with_its_place() -> None:
    told = fault(
        {
            "_target_": "torch.nn.Sequential",
            "inner": [{"_target_": "os.system"}, {"_target_": "torch.nn.Dropout", "q": 0.5, "inplace": "maybe"}],
        }
    ).splitlines()
    assert len(told) == 4
    assert told[0].startswith("part.inner: Sequential has no argument 'inner'")
    assert told[1].startswith("part.inner[0]._target_='os.system'")
    assert told[2].startswith("part.inner[1].q: Dropout has no argument 'q'")
    assert told[3] == "part.inner[1].inplace='maybe' must be bool, and is str"


@pytest.mark.parametrize(
    ("argument", "value", "expected"),
    [
        ("max_epochs", "abc", "part.max_epochs='abc' must be int or null, and is str"),
        ("max_epochs", 2.5, "part.max_epochs=2.5 must be int or null, and is float"),
        ("max_epochs", True, "part.max_epochs=True must be int or null, and is bool"),
        ("limit_val_batches", "two", "part.limit_val_batches='two' must be int or float or null, and is str"),
    ],
)
def test_plain_values_are_held_against_plain_annotations(argument: str, value: object, expected: str) -> None:
    assert fault({"_target_": "lightning.pytorch.Trainer", argument: value}) == expected


def test_a_whole_number_is_a_float_too_and_a_tensor_never_comes_from_a_recipe() -> None:
    check_targets({"part": {"_target_": "torch.optim.SGD", "lr": 1}}, allow_any=False)
    assert fault({"_target_": "torch.optim.SGD", "lr": "fast"}) == "part.lr='fast' must be float, and is str"
