"""Hints at near names."""

from __future__ import annotations

from lightning_snnprec.config.errors import near_names

KNOWN = ["precision", "precision.mode", "precision.margin", "trainer.max_epochs", "trainer.min_epochs", "model"]


def test_a_misspelt_name_is_recognised() -> None:
    assert near_names("trainer.max_epoch", KNOWN) == "did you mean 'trainer.max_epochs' or 'trainer.min_epochs'?"


def test_what_lies_inside_a_near_name_is_not_listed_beside_it() -> None:
    assert near_names("precison", KNOWN) == "did you mean 'precision'?"


def test_a_name_without_its_path_is_found_by_its_end() -> None:
    assert near_names("margin", KNOWN) == "did you mean 'precision.margin'?"


def test_nothing_near_gives_no_hint() -> None:
    assert near_names("qqqq", KNOWN) == ""
