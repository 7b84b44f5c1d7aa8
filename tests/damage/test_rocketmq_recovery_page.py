"""The table of docs/formats/rocketmq-recovery.md agrees with the recipes, both for the real store and for ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.damage.test_rocketmq_damage import (
    ACCEPT_LOSS,
    READ_ONLY,
    REFUSED,
    WITHOUT_LOG,
    WRITABLE,
    came_of,
)
from tests.golden import rocketmq_stores as stores

PAGE = Path(__file__).parents[2] / "docs" / "formats" / "rocketmq-recovery.md"
STORE = "many"
AFTER_A_CRASH = "-abort"
ROW = re.compile(r"^\| `([\w-]+)` \|[^|]+\|([^|]*)\|([^|]*)\|([^|]*)\|$", re.MULTILINE)
REPORTED = {
    name: tuple(cell.strip() for cell in cells) for name, *cells in ROW.findall(PAGE.read_text())
}
RECIPES = {recipe.name: recipe for recipe in stores.recipes() if recipe.store.name == STORE}


def test_every_recipe_is_told() -> None:
    assert sorted(REPORTED) == sorted({name.removesuffix(AFTER_A_CRASH) for name in RECIPES})


@pytest.mark.slow
@pytest.mark.parametrize("name", REPORTED)
def test_the_page_is_right(name: str) -> None:
    after_a_crash = name + AFTER_A_CRASH
    assert REPORTED[name] == (real(name), real(after_a_crash), ours(name))
    if after_a_crash in RECIPES:
        assert ours(after_a_crash) == ours(name)


def real(name: str) -> str:
    recipe = RECIPES.get(name)
    if recipe is None:
        return ""
    return "refused" if recipe.refused else str(recipe.real["readableMessages"])


def ours(name: str) -> str:
    recipe = RECIPES[name]
    read_only = len(came_of(recipe, READ_ONLY).rows)
    if recipe.refused:
        return f"{read_only}; refused for writing"
    if recipe in REFUSED + WITHOUT_LOG:
        return f"{read_only}; refused for writing, or {len(came_of(recipe, ACCEPT_LOSS).rows)}"
    assert len(came_of(recipe, WRITABLE).rows) == read_only
    return str(read_only)
