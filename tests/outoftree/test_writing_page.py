"""The page on writing plugins: its code runs from top to bottom, and its package is that of the example."""

import re
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "plugins" / "writing.md"
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_its_code_runs() -> None:
    names: dict[str, Any] = {"__name__": "page"}
    for block in blocks("python"):
        exec(compile(block, str(PAGE), "exec"), names)
    assert {"SameAppLimit", "PreferredRank", "Zones", "SameAppLimitWithHint", "Ranked"} <= names.keys()


def test_it_imports_the_public_interface_only() -> None:
    imported = {
        word for block in blocks("python") for word in re.findall(r"^(?:from|import) (\S+)", block, re.MULTILINE)
    }
    assert imported <= {"flotilla.plugin", "flotilla.testing", "numpy", "typing", "collections.abc", "dataclasses"}


def test_its_entry_point_is_that_of_the_example() -> None:
    (page,) = (tomllib.loads(block) for block in blocks("toml"))
    example = tomllib.loads((ROOT / "examples" / "flotilla-example-plugins" / "pyproject.toml").read_text())
    told = page["project"]["entry-points"]["flotilla.plugins"]
    assert told.items() <= example["project"]["entry-points"]["flotilla.plugins"].items()
    for key in ("name", "dependencies"):
        assert page["project"][key] == example["project"][key]


def test_its_links_lead_somewhere() -> None:
    prose = re.sub(r"^```.*?^```$", "", PAGE.read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in LINK.findall(prose):
        assert (PAGE.parent / target).exists(), target
