"""Rounds in which domains open: a node of a closed domain is offered if every other filter lets the pod onto it."""

from collections.abc import Hashable
from typing import Any, ClassVar

import pytest

from flotilla.plugin import ClassState, NodeInfo, PerNodeFilter, PodParts, Reads
from flotilla.results import SUCCESS, Status, error, unschedulable
from services.cycle.events import Decided, Failed
from shared.config.points import ExtensionPoint
from shared.framework.loading import load_frameworks
from shared.framework.profile import Framework
from shared.model.objects import Node, Pod
from testing.builders import node, pod, selector
from testing.inprocess.pipeline import Pipeline
from tests.rounds.support import DEFAULT, framework_with

APP = selector(app="web")


class NotBroken(PerNodeFilter):
    """Reads the node object only."""

    name = "NotBroken"
    filter_reads: ClassVar[Reads] = Reads.NODE
    reads_of_pod = PodParts.TEMPLATE

    def signature(self, pod: Pod) -> Hashable:
        return None

    def reads_objects(self, state: ClassState) -> tuple[()]:
        return ()

    def filter_node(self, state: ClassState, node: NodeInfo) -> Status:
        match node.node.metadata.labels.get("is"):
            case "broken":
                return unschedulable("broken")
            case "poison":
                return error("what is this?")
            case _:
                return SUCCESS


class NotBrokenNow(NotBroken):
    name = "NotBrokenNow"
    filter_reads: ClassVar[Reads] = Reads.PODS


def web(name: str) -> Pod:
    return pod(name).label(app="web").request(cpu="1").spread_hard("zone", APP).build()


def cluster(*, is_: str, each: int = 2) -> list[Node]:
    """The west has one node that is as said, and others that are not."""
    east = [node(f"east-{i}").label(zone="east").capacity(cpu=64).build() for i in range(each)]
    west = [node(f"west-{i}").label(zone="west").capacity(cpu=64).build() for i in range(each)]
    return [*east, *west, node("west-odd").label({"zone": "west", "is": is_}).capacity(cpu=64).build()]


def run(frameworks: dict[str, Framework], nodes: list[Node], pods: int, there: list[Pod], shards: int = 1) -> Pipeline:
    pipeline = Pipeline(frameworks, shards=shards)
    pipeline.add_nodes(nodes)
    pipeline.add_pods(there)
    pipeline.submit([web(f"p{i}") for i in range(pods)])
    pipeline.settle()
    return pipeline


IN_THE_WEST = [pod("first").label(app="web").on("west-0").build()]


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize("plugin", [NotBroken, NotBrokenNow])
def test_a_node_that_a_plugin_rejects_is_not_offered_when_its_domain_opens(plugin: type[Any], shards: int) -> None:
    pipeline = run(framework_with(plugin, ExtensionPoint.FILTER), cluster(is_="broken"), 20, IN_THE_WEST, shards)
    nodes = [outcome.node for outcome in pipeline.outcomes.values() if isinstance(outcome, Decided)]
    assert len(nodes) == 20
    assert "west-odd" not in nodes
    assert {zone: sum(each.startswith(zone) for each in nodes) for zone in ("east", "west")} == {"east": 10, "west": 10}


@pytest.mark.parametrize("plugin", [NotBroken, NotBrokenNow])
def test_such_a_plugin_costs_no_rounds(plugin: type[Any]) -> None:
    """Without closed domains on offer, a round ends where the first of them would have to open."""
    plain = run({"default-scheduler": DEFAULT}, cluster(is_="fine"), 60, IN_THE_WEST)
    with_plugin = run(framework_with(plugin, ExtensionPoint.FILTER), cluster(is_="fine"), 60, IN_THE_WEST)
    assert with_plugin.cycle.rounds.begun == plain.cycle.rounds.begun


def test_a_failure_on_a_node_of_a_closed_domain_waits_until_the_node_is_to_be_judged() -> None:
    frameworks = framework_with(NotBroken, ExtensionPoint.FILTER)
    first = run(frameworks, cluster(is_="poison"), 1, IN_THE_WEST)
    assert [type(outcome) for outcome in first.outcomes.values()] == [Decided]
    pipeline = run(frameworks, cluster(is_="poison"), 3, IN_THE_WEST)
    assert [type(outcome) for outcome in pipeline.outcomes.values()] == [Decided, Decided, Failed]


# Plugins whose Filter is not enabled


def scoring_only(name: str, *points: str) -> dict[str, Framework]:
    profile = {"plugins": {point: {"disabled": [{"name": name}]} for point in points}}
    raw = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", "profiles": [profile]}
    return load_frameworks(raw)


@pytest.mark.parametrize("points", [("filter",), ("filter", "preFilter")])
@pytest.mark.parametrize(
    ("plugin", "wanted"),
    [
        ("PodTopologySpread", pod("p").label(app="web").request(cpu="1").spread_hard("zone", APP)),
        ("InterPodAffinity", pod("p").label(app="web").request(cpu="1").require_no_pods("zone", APP)),
    ],
)
def test_a_rule_is_not_enforced_where_its_filter_is_disabled(plugin: str, wanted: Any, points: tuple[str, ...]) -> None:
    """All nodes are in one zone, or have none: only the rule stands in the way of these pods."""
    nodes = [node(f"n{i}").label(zone="z").capacity(cpu=64).build() for i in range(2)]
    nodes.append(node("other").label(zone="full").capacity(cpu=0).build())
    pipeline = Pipeline(scoring_only(plugin, *points))
    pipeline.add_nodes(nodes)
    pipeline.submit([wanted.uid(f"u{i}").build() for i in range(8)])
    pipeline.settle()
    assert [type(outcome) for outcome in pipeline.outcomes.values()] == [Decided] * 8
    assert pipeline.cycle.rounds.begun <= 2


@pytest.mark.parametrize("plugin", ["PodTopologySpread", "InterPodAffinity"])
def test_a_rule_is_enforced_where_its_filter_is_enabled(plugin: str) -> None:
    built = pod("p").label(app="web").request(cpu="1")
    wanted = built.spread_hard("zone", APP) if plugin == "PodTopologySpread" else built.require_no_pods("zone", APP)
    nodes = [node("n").label(zone="z").capacity(cpu=64).build(), node("o").label(zone="full").capacity(cpu=0).build()]
    pipeline = Pipeline({"default-scheduler": DEFAULT})
    pipeline.add_nodes(nodes)
    pipeline.submit([wanted.uid(f"u{i}").build() for i in range(8)])
    pipeline.settle()
    assert sum(isinstance(outcome, Decided) for outcome in pipeline.outcomes.values()) == 1
