"""SelectorSpread against its rules applied slowly, and what it follows in a round."""

from collections import Counter

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flotilla.results import NodeDomains
from shared.cluster.nodetable import NodeTable
from shared.cluster.objects import ClusterObjects
from shared.cluster.view import TableView
from shared.model.load import load_of
from shared.model.objects import ObjectMeta, Service
from shared.model.workloads import MapSelectorSpec
from shared.plugins.selectorspread import SelectorSpread
from testing.builders import NodeBuilder, class_state, node, pod, selector

PLUGIN = SelectorSpread()
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
NEW = pod("new").label(app="web").build()

Placed = tuple[NodeBuilder, int]


def with_service() -> ClusterObjects:
    objects = ClusterObjects()
    spec = MapSelectorSpec(selector={"app": "web"})
    objects.upsert(Service(metadata=ObjectMeta(name="web", namespace="default"), spec=spec))
    return objects


def scores(found: list[Placed], shards: int, objects: ClusterObjects, feasible: list[str]) -> dict[str, int]:
    tables, states = [], []
    for number in range(shards):
        table = NodeTable(capacity=4, objects=objects)
        for built, web in found[number::shards]:
            name = built.metadata.name
            table.add_node(built.build())
            gone = pod(f"{name}-gone").label(app="web").terminating().build()
            for each in [pod(f"{name}-{i}").label(app="web").build() for i in range(web)] + [gone]:
                table.add_pod(each.uid, name, load_of(each))
        state = class_state(NEW, objects)
        assert PLUGIN.pre_score(state).ok
        state.summaries[PLUGIN.name] = PLUGIN.summarize(state, TableView(table))
        tables.append(table)
        states.append(state)
    late = None
    for table, state in zip(tables, states, strict=True):
        mask = np.array([name in feasible for name in table.names], dtype=np.bool_)
        part = PLUGIN.summarize_feasible(state, TableView(table), mask)
        late = part if late is None or part is None else PLUGIN.merge_feasible(late, part)
    found_scores: dict[str, int] = {}
    for table, state in zip(tables, states, strict=True):
        state.feasible_summaries = {} if late is None else {PLUGIN.name: late}
        answers = PLUGIN.score(state, TableView(table)).tolist()
        found_scores |= {n: s for n, s in zip(table.names, answers, strict=True) if n in feasible}
    return found_scores


def expected_scores(found: list[Placed], feasible: list[str]) -> dict[str, int]:
    chosen = [(built.metadata, web) for built, web in found if built.metadata.name in feasible]
    zones: Counter[tuple[str, str]] = Counter()
    for meta, web in chosen:
        zones[zone_of(meta.labels)] += web
    del zones["", ""]
    most, most_in_zone = max(web for _, web in chosen), max(zones.values(), default=0)
    scores: dict[str, int] = {}
    for meta, web in chosen:
        score = 100.0 * (float(most - web) / float(most)) if most else 100.0
        zone = zone_of(meta.labels)
        if zone != ("", ""):
            of_zone = 100.0 * (float(most_in_zone - zones[zone]) / float(most_in_zone)) if most_in_zone else 100.0
            score = score * (1.0 - 2.0 / 3.0) + 2.0 / 3.0 * of_zone
        scores[meta.name] = int(score)
    return scores


def zone_of(labels: dict[str, str]) -> tuple[str, str]:
    return labels.get(REGION, ""), labels.get(OLD_ZONE, labels.get(ZONE, ""))


@st.composite
def clusters(draw: st.DrawFn) -> list[Placed]:
    found: list[Placed] = []
    for number in range(draw(st.integers(1, 7))):
        built = node(f"n{number}")
        for key in (ZONE, REGION, OLD_ZONE):
            value = draw(st.sampled_from(["a", "b", "", None, None]))
            built = built if value is None else built.label({key: value})
        found.append((built, draw(st.integers(0, 5))))
    return found


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(clusters(), st.integers(1, 3), st.data())
def test_scores_are_those_of_the_slow_rules_for_any_number_of_shards(
    found: list[Placed], shards: int, data: st.DataObject
) -> None:
    names = [built.metadata.name for built, _ in found]
    feasible = data.draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    assert scores(found, shards, with_service(), feasible) == expected_scores(found, feasible)


def test_all_nodes_are_alike_to_a_pod_that_belongs_with_none() -> None:
    found = [(node("a").label({ZONE: "a"}), 3), (node("b"), 0)]
    assert scores(found, 1, ClusterObjects(), ["a", "b"]) == {"a": 100, "b": 100}


def test_a_pod_with_constraints_of_its_own_is_no_concern_of_it() -> None:
    constrained = pod("new").label(app="web").spread_soft(ZONE, selector(app="web")).build()
    assert PLUGIN.pre_score(class_state(constrained, with_service())).skipped
    assert PLUGIN.signature(constrained) is None


def test_decisions_of_a_round_make_their_zone_worth_less() -> None:
    state = class_state(NEW, with_service())
    PLUGIN.pre_score(state)
    table = NodeTable(capacity=4)
    topology = PLUGIN.topology(state, TableView(table))
    assert topology is not None
    assert ZONE in topology.keys
    tracker = PLUGIN.tracker(
        NEW, PLUGIN.summarize(state, TableView(table)), {"most": 1, "zones": {"/a": 1, "/b": 1}}, None
    )
    assert tracker is not None
    a, b = NodeDomains("a", {ZONE: "a"}), NodeDomains("b", {ZONE: "b"})
    tracker.placed("web", load_of(NEW), a)
    assert tracker.shift(a, 0) == 0
    assert tracker.shift(b, 0) == 33
    assert tracker.admits(a)
