"""An evaluator that followed a table through its history answers as one that sees the table for the first time."""

from typing import Literal

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from shared.cluster.nodetable import NodeTable
from shared.config.points import ExtensionPoint, PluginRef
from shared.errors import ClusterError
from shared.framework.evaluator import Question, ShardEvaluator
from shared.framework.loading import load_frameworks
from shared.framework.pod_class import PodClass
from shared.framework.profile import Framework, merge
from shared.messages.evaluation import Ties
from shared.model.load import load_of
from shared.model.objects import Node, Pod
from testing.builders import expr, node, pod, selector, term
from tests.cluster.history import NAMES, STEPS, Step, apply, nodes
from tests.framework.evaluation import answers, climbed_by_placing, evaluate, ladder, ladders, summary_of
from tests.framework.plugins import CountNodes, FewPods, NormalizedScore, Uncordoned, ZoneFilter
from tests.framework.plugins import framework as plain_framework
from tests.plugins.cluster import framework as profile_of
from tests.plugins.cluster import judge, table_of

FRAMEWORK = load_frameworks(None)["default-scheduler"]
DISABLED = {"multiPoint": {"disabled": [{"name": "ImageLocality"}]}}
# No summary takes part, so that nothing starts over only because nodes came or went.
LOCAL = load_frameworks({"profiles": [{"plugins": DISABLED}]})["default-scheduler"]
SMALL = pod("small").container("c", image="web:1").request(cpu="300m", memory="200Mi")
OWN = plain_framework(
    {
        ExtensionPoint.FILTER: ["ZoneFilter", "Uncordoned", "FewPods"],
        ExtensionPoint.SCORE: [PluginRef("AskedScore", 3), "CountNodes"],
    },
    ZoneFilter(),
    Uncordoned(),
    FewPods(),
    NormalizedScore(),
    CountNodes(),
)

PODS: list[Pod] = [
    builder.build()
    for builder in (
        pod("empty"),
        SMALL,
        SMALL.container("d", image="db:1"),
        SMALL.tolerate("a").tolerate("c"),
        SMALL.tolerate("").request({"example.com/r1": 1}),
        SMALL.host_port(80).host_port(81, ip="10.0.0.1"),
        SMALL.node_selector(zone="east").prefer_node(7, expr("disk", "Gt", "9")).prefer_node(3, expr("disk", "Exists")),
        SMALL.require_node(expr("zone", "NotIn", "east"), expr("disk", "Lt", "9")).tolerate("b"),
        SMALL.require_node(term(name="n2"), term(expr("zone", "Exists"), name="n3")),
        pod("large").request(cpu="3"),
        pod("named").on("n4"),
    )
]

# Histories are long: to shrink one is worth the time, to explain it is not.
PHASES = tuple(phase for phase in Phase if phase is not Phase.explain)
MODES: st.SearchStrategy[Literal["random", "name"]] = st.sampled_from(["random", "name"])
HISTORIES = st.lists(st.lists(STEPS, max_size=6), min_size=2, max_size=6)
START = st.lists(nodes(), min_size=1, max_size=8)


def started(built: list[Node]) -> NodeTable:
    """Small at first, so that it grows."""
    table = NodeTable(capacity=2)
    for each in built:
        table.upsert_node(each)
    return table


def follow(table: NodeTable, steps: list[Step]) -> None:
    for step in steps:
        try:
            apply(table, step)
        except ClusterError:
            continue  # refused steps are part of life, and change nothing


def prepared(evaluator: ShardEvaluator, pods: list[Pod]) -> list[PodClass]:
    return [evaluator.prepare(built.name, built) for built in pods]


@pytest.mark.parametrize("framework", [FRAMEWORK, LOCAL, OWN], ids=["default", "local", "one by one"])
@pytest.mark.parametrize("mode", ["random", "name"])
@settings(deadline=None, max_examples=12, phases=PHASES)
@given(data=st.data(), start=START, histories=HISTORIES)
def test_history_does_not_show(
    framework: Framework,
    mode: Literal["random", "name"],
    data: st.DataObject,
    start: list[Node],
    histories: list[list[Step]],
) -> None:
    table = started(start)
    ties = Ties(mode, seed=3)
    kept = ShardEvaluator(table, framework, ties)
    chosen = data.draw(st.lists(st.sampled_from(range(len(PODS))), min_size=2, max_size=4, unique=True))
    classes = {number: kept.prepare(str(number), PODS[number]) for number in chosen}
    for steps in histories:
        follow(table, steps)
        left_out = data.draw(st.sets(st.sampled_from(sorted(classes)), max_size=2))
        looked_at = [number for number in classes if number not in left_out]
        if data.draw(st.integers(0, 4)) == 4:
            number = data.draw(st.sampled_from(range(len(PODS))))
            if number in classes:
                kept.release(classes[number])
            classes[number] = kept.prepare(str(number), PODS[number])
        evaluate(kept, [classes[number] for number in looked_at])
        fresh = ShardEvaluator(table, framework, ties)
        for number in looked_at:
            new = fresh.prepare(str(number), PODS[number])
            evaluate(fresh, [new])
            assert answers(kept, classes[number]) == answers(fresh, new)


@settings(deadline=None, max_examples=6, phases=PHASES)
@given(MODES, START, HISTORIES)
def test_many_classes_at_once_are_as_one_by_one(
    mode: Literal["random", "name"], start: list[Node], histories: list[list[Step]]
) -> None:
    table = started(start)
    together, singly = (ShardEvaluator(table, FRAMEWORK, Ties(mode)) for _ in range(2))
    at_once, in_turn = prepared(together, PODS), prepared(singly, PODS)
    for steps in histories:
        follow(table, steps)
        evaluate(together, at_once)
        for pod_class in in_turn:
            evaluate(singly, [pod_class])
        wanted = [1 + i % 4 for i in range(len(PODS))]
        found = ladders(together, at_once, wanted, [None] * len(PODS))
        for pod_class, other, n, rungs in zip(at_once, in_turn, wanted, found, strict=True):
            assert rungs == ladder(singly, other, n)
            assert answers(together, pod_class) == answers(singly, other)


@settings(deadline=None, max_examples=20, phases=PHASES)
@given(MODES, st.lists(nodes(), min_size=1, max_size=7), st.lists(STEPS, max_size=10), st.integers(0, len(PODS) - 1))
def test_a_ladder_is_what_placing_one_pod_after_another_gives(
    mode: Literal["random", "name"], start: list[Node], steps: list[Step], number: int
) -> None:
    table = started(start)
    follow(table, steps)
    evaluator = ShardEvaluator(table, FRAMEWORK, Ties(mode))
    pod_class = evaluator.prepare("x", PODS[number])
    evaluate(evaluator, [pod_class])
    ranges = summary_of(evaluator, pod_class).ranges
    expected = ladder(evaluator, pod_class, 12)
    assert climbed_by_placing(evaluator, pod_class, 12, ranges) == expected


@settings(deadline=None, max_examples=15, phases=PHASES)
@given(MODES, START, st.lists(STEPS, max_size=12), st.integers(1, 3))
def test_shards_together_know_what_one_table_knows(
    mode: Literal["random", "name"], start: list[Node], steps: list[Step], shards: int
) -> None:
    whole = started(start)
    follow(whole, steps)
    tables = [NodeTable() for _ in range(shards)]
    for row, built in whole.nodes():
        part = tables[NAMES.index(built.name) % shards]
        part.add_node(built)
        for uid, load in [(uid, placed.kind.load) for uid, placed in whole.placed_at(row)]:
            part.add_pod(uid, built.name, load)
    ties = Ties(mode, seed=5)
    one, parts = ShardEvaluator(whole, FRAMEWORK, ties), [ShardEvaluator(t, FRAMEWORK, ties) for t in tables]
    for built_pod in PODS:
        pod_class = one.prepare(built_pod.name, built_pod)
        evaluate(one, [pod_class])
        split = [evaluator.prepare(built_pod.name, built_pod) for evaluator in parts]
        pairs = list(zip(parts, split, strict=True))
        summary = merge(FRAMEWORK, [summary_of(evaluator, c) for evaluator, c in pairs])
        while True:
            guess = summary
            evaluated = [evaluator.evaluate([Question(c, guess)])[0] for evaluator, c in pairs]
            summary = merge(FRAMEWORK, [each.summary for each in evaluated])
            if summary.agrees_with(guess):
                break
        assert summary == summary_of(one, pod_class)
        scores = [key >> one.tie_bits for _, key in ladder(one, pod_class, 1)]
        heads = [head for evaluator, c in pairs for head in ladder(evaluator, c, 1)]
        assert [max(key for _, key in heads) >> one.tie_bits] == scores if heads else not scores
        if mode == "random":
            assert sorted(heads, key=lambda head: -head[1])[:1] == ladder(one, pod_class, 1)


def test_by_name_the_alphabetically_first_of_equals_wins_however_nodes_came() -> None:
    table = NodeTable()
    evaluator = ShardEvaluator(table, LOCAL, Ties("name"))
    pod_class = evaluator.prepare("x", SMALL.build())
    present: set[str] = set()
    for name in ("m", "b", "-b", "x", "c", "d", "-m", "ba", "a", "-a"):
        if name.startswith("-"):
            table.remove_node(name[1:])
            present.remove(name[1:])
        else:
            table.add_node(node(name).capacity(cpu="4", memory="4Gi").build())
            present.add(name)
        evaluate(evaluator, [pod_class])
        placed = [taken for taken, _ in ladder(evaluator, pod_class, len(present))]
        assert placed == sorted(present)


def test_many_blocks_of_rows() -> None:
    """Placements on a table of many blocks, each step compared with a fresh look."""
    table = NodeTable()
    for i in range(700):
        table.add_node(node(f"n{i:03}").capacity(cpu="2", memory="4Gi", pods=3 + i % 3).label(zone=str(i % 7)).build())
    ties = Ties(seed=9)
    kept = ShardEvaluator(table, FRAMEWORK, ties)
    classes = [kept.prepare(str(i), PODS[i]) for i in (1, 3, 5)]
    for turn in range(25):
        evaluate(kept, classes)
        fresh = ShardEvaluator(table, FRAMEWORK, ties)
        for i, pod_class in zip((1, 3, 5), classes, strict=True):
            new = fresh.prepare(str(i), PODS[i])
            evaluate(fresh, [new])
            for wanted in (1, 3, 40):
                assert ladder(kept, pod_class, wanted) == ladder(fresh, new, wanted)
        for i, (name, _) in enumerate(ladder(kept, classes[turn % 3], 30)):
            table.add_pod(f"{turn}-{i}", name, classes[turn % 3].kind)
        if turn % 5 == 4:
            table.remove_node(f"n{turn:03}")
            table.upsert_node(node(f"n{turn + 100:03}").capacity(cpu="8", memory="8Gi").build())


def test_a_pod_that_cannot_be_prepared_says_why() -> None:
    evaluator = ShardEvaluator(NodeTable(), FRAMEWORK, Ties())
    conflicting = SMALL.require_node(term(expr("zone", "In", "a"), name="n1")).build()
    assert evaluator.prepare("x", conflicting).pre.nodes == frozenset({"n1"})
    wrong = SMALL.prefer_node(5, expr("zone", "Gt", "many")).build()
    failure = evaluator.prepare("y", wrong).score_failure
    assert failure is not None
    assert failure.plugin == "NodeAffinity"
    assert load_of(wrong) == evaluator.prepare("y", wrong).kind.load


@pytest.mark.parametrize(
    ("disabled", "expected"),
    [
        ("", ["InterPodAffinity", "NodeAffinity"]),
        ("NodeAffinity", ["InterPodAffinity", "NodeAffinity"]),
        ("InterPodAffinity", ["InterPodAffinity", "NodeAffinity"]),
        ("*", []),
    ],
)
def test_pre_score_tells_what_is_skipped_unless_there_is_no_score_at_all(disabled: str, expected: list[str]) -> None:
    profile = profile_of("NodeAffinity", "InterPodAffinity", "TaintToleration", no_score=disabled)
    arriving = pod("p").prefer_pods(1, "zone", selector(app="unknown"))
    assert judge(profile, arriving, table_of(node("n"))).skipped_scores == expected
