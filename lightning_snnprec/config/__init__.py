"""Recipes: where they lie, what they consist of, how they are composed, checked and stored."""

from lightning_snnprec.config.compose import compose_recipe
from lightning_snnprec.config.errors import UserError
from lightning_snnprec.config.location import recipes_dir
from lightning_snnprec.config.schema import check_recipe
from lightning_snnprec.config.stored import FoundRun, find_run, save_recipe

__all__ = ["FoundRun", "UserError", "check_recipe", "compose_recipe", "find_run", "recipes_dir", "save_recipe"]
