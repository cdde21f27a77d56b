"""The page on writing plugins: its code runs, and is that of the example."""

import re
import tomllib
from collections.abc import Collection, Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from shared.cluster.columns import ABSENT, NodeColumn
from shared.cluster.nodetable import NodeTable
from shared.framework.cyclestate import CycleState
from shared.framework.normalize import ScaleToHighest, Scores
from shared.framework.plugin import PodParts, Reads, ScorePlugin
from shared.framework.view import NodeView
from shared.model.load import load_of
from shared.model.objects import Node, ObjectKind, Pod, node_from, pod_from

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "plugins" / "writing.md"
LINK = re.compile(r"\]\((?!https?:)([^)#\s]*)")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)


def test_its_filter_and_test_run() -> None:
    plugin, test, *_ = blocks("python")
    web = pod_from({"metadata": {"name": "p", "labels": {"app": "web"}}})
    names: dict[str, Any] = {
        "NodeTable": NodeTable,
        "NodeView": NodeView,
        "CycleState": CycleState,
        "load_of": load_of,
        "node_from": node_from,
        "web": web,
    }
    exec(plugin, names)
    exec(test, names)


def test_its_events_and_their_test_run() -> None:
    plugin, *others = blocks("python")
    events, test = (next(block for block in others if part in block) for part in ("def events", "makes_room(web"))
    names: dict[str, Any] = {"pod_from": pod_from}
    exec(plugin, names)
    exec(events.replace("(PerNodeFilter):\n    ...\n", "(SameAppLimit):\n"), names)
    exec(test, names)


def test_its_score_runs() -> None:
    names: dict[str, Any] = {
        "dataclass": dataclass,
        "ABSENT": ABSENT,
        "Node": Node,
        "NodeColumn": NodeColumn,
        "NodeTable": NodeTable,
        "NodeView": NodeView,
        "CycleState": CycleState,
        "Collection": Collection,
        "Hashable": Hashable,
        "ObjectKind": ObjectKind,
        "Pod": Pod,
        "PodParts": PodParts,
        "Reads": Reads,
        "ScaleToHighest": ScaleToHighest,
        "ScorePlugin": ScorePlugin,
        "Scores": Scores,
        "np": np,
    }
    exec(next(block for block in blocks("python") if "class Rank" in block), names)
    table = NodeTable()
    table.add_node(
        node_from(
            {
                "metadata": {"name": "a", "labels": {"example.com/rank": "7"}},
                "status": {"allocatable": {"pods": "110"}},
            }
        )
    )
    plugin = names["PreferredRank"]()
    assert plugin.score(CycleState(pod_from({"metadata": {"name": "p"}})), NodeView(table))[0] == 7


def test_its_entry_point_is_that_of_the_example() -> None:
    (page,) = (tomllib.loads(block) for block in blocks("toml"))
    example = tomllib.loads((ROOT / "examples" / "flotilla-example-plugins" / "pyproject.toml").read_text())
    told = page["project"]["entry-points"]["flotilla.plugins"]
    assert told.items() <= example["project"]["entry-points"]["flotilla.plugins"].items()
    assert page["project"]["name"] == example["project"]["name"]


def test_its_links_lead_somewhere() -> None:
    for target in LINK.findall(PAGE.read_text()):
        assert (PAGE.parent / target).exists(), target
