"""Rounds in which a decision matters to other pods beyond the node that it fills, with a rule made for the test."""

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flotilla.plugin import ClassState, FilterPlugin, NodeView, SummaryPlugin, Tracker
from flotilla.results import NodeDomains, Range, Topology, unschedulable
from services.cycle.events import Decided, Unschedulable
from shared.cluster.topology import merge_counts, pod_count
from shared.cluster.view import view_of
from shared.config.points import ExtensionPoint
from shared.messages.rounds import Propose
from shared.model.load import PodLoad
from shared.model.objects import Node, Pod
from testing.builders import node, pod, selector
from testing.inprocess.pipeline import Fate, Pipeline, reliable
from tests.cluster.dump import domain_counts
from tests.framework.plugins import framework

ZONE = "zone"


class FewPerZone(SummaryPlugin[Any, None], FilterPlugin):
    """A pod that says `few: n` goes where its zone has fewer than n pods of its app."""

    name = "FewPerZone"

    def signature(self, pod: Pod) -> Hashable:
        return pod.metadata.labels.get("app"), pod.metadata.labels.get("few")

    def summarize(self, state: ClassState, nodes: NodeView) -> Any:
        return domain_counts(view_of(nodes).table, ZONE, self._count(state))

    def merge(self, one: Any, other: Any) -> Any:
        return merge_counts(one, other)

    def filter(self, state: ClassState, nodes: NodeView) -> None:
        most = state.pod.metadata.labels.get("few")
        if most is not None:
            counts, zone = state.summaries[self.name], nodes.label(ZONE)
            there = np.array([counts[zone.values[number]] for number in zone.numbers.tolist()], dtype=np.int64)
            enough = there + nodes.change_of(self._count(state)) >= int(most)
            nodes.reject(enough, unschedulable("the zone has enough of them"))

    def topology(self, state: ClassState, nodes: NodeView) -> Topology | None:
        return Topology((ZONE,), (ZONE,)) if "few" in state.pod.metadata.labels else None

    def tracker(self, pod: Pod, summary: Any, late: Any, scores: Range | None) -> Tracker | None:
        return FewTracker(pod.metadata.labels.get("app", ""), pod.metadata.labels.get("few"), summary)

    def _count(self, state: ClassState) -> Any:
        return pod_count({"default"}, selector(app=state.pod.metadata.labels.get("app", "")), with_terminating=True)


class FewTracker(Tracker):
    def __init__(self, app: str, most: str | None, counts: dict[str, int]) -> None:
        self._app, self._most, self._counts = app, most, dict(counts)

    def admits(self, place: NodeDomains) -> bool:
        return self._most is None or self._counts[place.domains[ZONE]] < int(self._most)

    def placed(self, class_id: str, load: PodLoad, place: NodeDomains) -> None:
        if load.labels.get("app") == self._app:
            self._counts[place.domains[ZONE]] += 1
            self.touched = True

    def summary(self) -> Any:
        return self._counts


def zoned(zones: int, each: int, cpu: str = "64") -> list[Node]:
    capacity = {"cpu": cpu, "memory": "64Gi", "pods": "200"}
    return [
        node(f"n{zone}-{i}").label({ZONE: f"z{zone}"}).capacity(capacity).build()
        for zone in range(zones)
        for i in range(each)
    ]


def few(name: str, app: str, most: int) -> Pod:
    return pod(name).label(app=app, few=str(most)).build()


RULE = framework({ExtensionPoint.FILTER: ("FewPerZone",)}, FewPerZone())


def run(nodes: list[Node], pods: list[Pod], shards: int, round_size: int, fate: Fate = reliable) -> Pipeline:
    RULE.name = "default-scheduler"
    pipeline = Pipeline({RULE.name: RULE}, shards=shards, round_size=round_size, fate=fate)
    pipeline.add_nodes(nodes)
    pipeline.submit(pods)
    pipeline.settle()
    return pipeline


def zones_of(pipeline: Pipeline, pods: list[Pod]) -> dict[tuple[str, str], int]:
    """How many pods of each app are in each zone."""
    found: dict[tuple[str, str], int] = {}
    for each in pods:
        outcome = pipeline.outcomes[each.uid]
        if isinstance(outcome, Decided):
            key = each.metadata.labels["app"], outcome.node[1]
            found[key] = found.get(key, 0) + 1
    return found


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
@pytest.mark.parametrize("round_size", [1, 2, 16, 256])
def test_a_zone_never_exceeds_its_limit(shards: int, round_size: int) -> None:
    pods = [few(f"p{i}", "a", 3) for i in range(20)]
    pipeline = run(zoned(4, 3), pods, shards, round_size)
    assert zones_of(pipeline, pods) == {("a", str(zone)): 3 for zone in range(4)}
    left = [outcome for outcome in pipeline.outcomes.values() if isinstance(outcome, Unschedulable)]
    assert len(left) == 8
    assert {each.unfit.message for each in left} == {"0/12 nodes are available: 12 the zone has enough of them."}


def test_many_are_decided_in_one_round() -> None:
    pods = [few(f"p{i}", "a", 64) for i in range(256)]
    pipeline = run(zoned(4, 5), pods, 2, 256)
    assert set(zones_of(pipeline, pods).values()) == {64}
    assert pipeline.cycle.rounds.begun <= 3


def test_the_summary_after_a_round_is_predicted() -> None:
    asks: list[Propose] = []

    def noted(message: object) -> Sequence[float]:
        if isinstance(message, Propose):
            asks.append(message)
        return (0.0,)

    pods = [few(f"p{i}", "a", 64) for i in range(8)]
    pipeline = run(zoned(2, 2), pods, 2, 8, noted)
    before = len(asks)
    pipeline.submit([few(f"q{i}", "a", 64) for i in range(8)])
    pipeline.settle()
    assert len(asks) == before + 2, "each of the two workers is asked once"


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 4)), min_size=1, max_size=30),
    st.integers(1, 4),
    st.integers(1, 7),
    st.sampled_from([1, 2, 5, 30]),
)
def test_rules_hold_among_classes(wanted: list[tuple[str, int]], zones: int, shards: int, round_size: int) -> None:
    """Each pod's own limit held when it was decided; in strict mode no pod for which there was room is refused."""
    pods = [few(f"p{i}", app, most) for i, (app, most) in enumerate(wanted)]
    pipeline = run(zoned(zones, 2), pods, shards, round_size)
    order = [uid for uid, outcome in pipeline.outcomes.items() if isinstance(outcome, Decided)]
    by_uid = {each.uid: each for each in pods}
    counts: dict[tuple[str, str], int] = {}
    for uid in order:
        labels, outcome = by_uid[uid].metadata.labels, pipeline.outcomes[uid]
        assert isinstance(outcome, Decided)
        key = labels["app"], outcome.node[1]
        assert counts.get(key, 0) < int(labels["few"])
        counts[key] = counts.get(key, 0) + 1
    for each in pods:
        if isinstance(pipeline.outcomes[each.uid], Unschedulable):
            labels = each.metadata.labels
            assert all(counts.get((labels["app"], str(z)), 0) >= int(labels["few"]) for z in range(zones))
