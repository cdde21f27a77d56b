"""The journal: decisions as they were made, bounded, and by whom a pod was preempted."""

import pytest

from flotilla.results import error
from services.cycle.events import Failed
from services.cycle.explanation.journal import Journal
from services.cycle.extenders import Extenders
from services.cycle.round.admission import Admission, PodInfo
from services.cycle.round.ladder_merge import Placement
from services.cycle.round.views import ClassView, view_of
from shared.framework.loading import load_frameworks
from shared.messages.evaluation import Ties
from shared.messages.explaining import ExplainPod, PodExplained, Remembered
from shared.messages.queue import Gang
from shared.messages.rounds import ClassAnswer, Ladder
from shared.model.objects import encode_msgpack
from testing.builders import node, pod
from testing.inprocess.batches import batch_of
from testing.inprocess.pipeline import Pipeline
from tests.explain.support import explained as explanation
from tests.rounds.gangs import GangRun
from tools.explain.client import held_up
from tools.explain.history import told
from tools.explain.text import render

FRAMEWORKS = load_frameworks(None)


def an_info(name: str) -> PodInfo:
    admission = Admission(FRAMEWORKS, Extenders())
    (queued,) = batch_of([pod(name).build()]).pods
    info, failure = admission.admit(queued, 0.0)
    assert failure is None
    return info


def asked(pipeline: Pipeline, name: str) -> PodExplained:
    return pipeline.explain_pod(ExplainPod("default", name))


def kinds(records: tuple[Remembered, ...]) -> list[str]:
    return [record.kind for record in records]


@pytest.mark.parametrize("shards", [1, 3])
def test_a_placed_pod_is_remembered_with_the_next_best_nodes(shards: int) -> None:
    pipeline = Pipeline(shards=shards, ties=Ties(mode="name"))
    pipeline.add_nodes([node(f"n{i}").capacity(cpu=4 + i, memory="8Gi").build() for i in range(8)])
    pipeline.add_nodes([node("tiny").capacity(cpu="100m").build()])
    pipeline.settle()
    pipeline.submit([pod(f"p{i}").request(cpu=1, memory="1Gi").build() for i in range(3)])
    pipeline.settle()
    for name in ("p0", "p1", "p2"):
        explained = asked(pipeline, name)
        (record,) = explained.journal
        assert (record.kind, record.feasible, record.nodes, record.round) == ("placed", 8, 9, 1)
        assert record.node == pipeline.outcomes[f"default/{name}"].node  # type: ignore[union-attr]
        assert record.best[0].node == record.node
        assert len({each.node for each in record.best}) == len(record.best) >= 3
        sentence = told(f"default/{name}", explained, node=record.node, is_binding=False).sentence
        assert f"is on node {record.node}: it was the best of 8 that it fitted, of 9 nodes" in sentence
        assert f"next best was {record.best[1].node}" in sentence


def test_a_pod_that_is_being_bound_comes_with_what_is_not_ready_first() -> None:
    pipeline = Pipeline()
    pipeline.add_nodes([node("a").capacity(cpu=4).build()])
    pipeline.settle()
    pipeline.submit([pod("p").request(cpu=1).build()])
    pipeline.settle()
    binding = told("default/p", asked(pipeline, "p"), node="a", is_binding=True)
    assert held_up(binding, []) == binding
    said = held_up(binding, ["not ready: snapshot: redis: no answer", "not ready: b1: clock: differs"])
    assert said.sentence.startswith(
        "default/p is not bound while this is not ready: snapshot: redis: no answer; it is being bound to node a: "
    )
    assert said.notes == ("not ready: b1: clock: differs",)


def test_what_was_decided_does_not_change_with_the_cluster() -> None:
    pipeline = Pipeline()
    pipeline.add_nodes([node("a").capacity(cpu=4).build()])
    pipeline.settle()
    pipeline.submit([pod("p").request(cpu=1).build()])
    pipeline.settle()
    before = asked(pipeline, "p").journal
    pipeline.add_nodes([node("b").capacity(cpu=64).build()])
    pipeline.settle()
    assert asked(pipeline, "p").journal == before


def test_the_last_failure_and_the_placement_after_it_are_remembered() -> None:
    pipeline = Pipeline()
    pipeline.add_nodes([node("a").capacity(cpu=1).build()])
    pipeline.settle()
    given = pod("p").request(cpu=2).build()
    for _ in range(3):
        pipeline.submit([given])
        pipeline.settle()
    (record,) = asked(pipeline, "p").journal
    assert record.message.startswith("0/1 nodes are available: 1 Insufficient cpu.")
    pipeline.add_nodes([node("b").capacity(cpu=2).build()])
    pipeline.settle()
    pipeline.submit([given])
    pipeline.settle()
    assert kinds(asked(pipeline, "p").journal) == ["placed", "failed"]


def test_a_victim_learns_for_whom_it_went() -> None:
    pipeline = Pipeline()
    pipeline.add_nodes([node("a").capacity(cpu=2).build(), node("b").capacity(cpu=1).build()])
    there = pod("low").request(cpu=2).priority(1).on("a").build()
    pipeline.add_pods([there])
    pipeline.settle()
    pipeline.submit([pod("high").request(cpu=2).priority(100).build()])
    pipeline.settle()
    explained = asked(pipeline, "low")
    (evicted,) = explained.journal
    assert (evicted.kind, evicted.preemptor, evicted.score, evicted.node) == ("evicted", "default/high", 100, "a")
    said = told("default/low", explained, node="", is_binding=False)
    assert said.sentence == "default/low was preempted on node a by default/high"
    assert "lower priority than default/high (priority 100)" in said.notes[0]
    nominated = asked(pipeline, "high").journal[0]
    assert (nominated.kind, nominated.victims) == ("nominated", ("default/low",))


def test_nothing_is_known_of_other_pods() -> None:
    pipeline = Pipeline()
    explained = asked(pipeline, "nobody")
    assert (explained.journal, explained.uid) == ((), "")
    said = told("default/nobody", explained, node="x", is_binding=False)
    assert "decided before the cycle's present term" in said.sentence


def test_the_oldest_pods_are_forgotten_by_number_and_by_bytes() -> None:
    infos = [an_info(f"p{i}") for i in range(20)]
    by_number = Journal(most=5)
    by_bytes = Journal(most_bytes=5000)
    for i, info in enumerate(infos):
        by_number.placed(info, Placement("n", i, 1), i, ClassView(), float(i))
        by_bytes.unplaced(Failed(info.uid, error("x" * 500), pod=info), i, 1, float(i))
    assert len(by_number) == 5
    assert by_number.of("", "default", "p14", float)[1] == ()
    assert by_number.of("", "default", "p15", float)[1][0].score == 15
    assert 2 <= len(by_bytes) <= 5
    for _ in range(50):  # the same pod again and again
        by_bytes.unplaced(Failed(infos[-1].uid, error("y"), pod=infos[-1]), 1, 1, 1.0)
    assert len(by_bytes) >= 2


def test_a_view_has_each_node_once_and_the_best_first() -> None:
    one = Ladder(nodes=["a", "a", "b"], scores=[9, 8, 7], ties=[1, 1, 1])
    other = Ladder(nodes=["c", "d"], scores=[10, 8], ties=[1, 2])
    answers = [ClassAnswer("x", ladder=one), ClassAnswer("x", ladder=other)]
    view = view_of(4, 5, answers)
    assert (view.feasible, view.nodes) == (4, 5)
    assert view.best() == [("c", 10), ("a", 9), ("d", 8), ("b", 7)]
    alone = ClassAnswer("x", ladder=Ladder(nodes=["a"], scores=[9], ties=[1]), runner_up=("b", 9))
    assert view_of(2, 2, [alone]).best() == [("a", 9), ("b", 9)]


@pytest.mark.parametrize("shards", [1, 3])
def test_of_a_lone_pod_the_runner_up_is_remembered(shards: int) -> None:
    pipeline = Pipeline(shards=shards, ties=Ties(mode="name"))
    pipeline.add_nodes([node(f"n{i:03}").capacity(cpu=4 + i % 5, memory="8Gi").build() for i in range(300)])
    pipeline.settle()
    given = pod("p").request(cpu=1, memory="1Gi")
    explained = pipeline.explain_pod(ExplainPod(body=encode_msgpack(given.build())))
    assert explained.findings is not None
    pipeline.submit([given.build()])
    pipeline.settle()
    (record,) = asked(pipeline, "p").journal
    assert [each.total for each in record.best[:2]] == [each.total for each in explained.findings.best[:2]]
    assert record.best[1].node != record.node


@pytest.mark.asyncio
async def test_of_a_gang_the_member_that_kept_it_out_is_named() -> None:
    run = GangRun(shards=2)
    run.add_nodes([node("a").capacity(cpu=4).build()])
    run.settle()
    members = [pod("small").request(cpu=1).build(), pod("large").request(cpu=64).build()]
    run.take((Gang("default/train", 2), members))
    run.settle()
    (record,) = asked(run, "small").journal
    assert (record.kind, record.gang, record.kept_out_by) == ("failed", "default/train", ("default/large",))
    small = await explanation(run, members[0])
    assert small.sentence == (
        "default/small alone fits the only node, but its gang default/train is placed as a whole or not at all: "
        "2 of its members must be placed, and 1 found room; no node took default/large (flotilla gang default/train)"
    )
    large = await explanation(run, members[1])
    assert "does not fit the only node: it lacks cpu (it asks for 64, it has 4 in all)" in large.sentence
    assert any(each.kind == "requests" for each in large.help)
    assert small.sentence.partition(", but ")[2] in large.notes


@pytest.mark.asyncio
async def test_of_a_gang_without_room_each_member_says_how_many_found_some() -> None:
    run = GangRun(shards=2)
    run.add_nodes([node(f"n{i}").capacity(cpu=4).build() for i in range(2)])
    run.settle()
    members = [pod(f"m{i:02}").request(cpu=3).build() for i in range(20)]
    run.take((Gang("default/train", 20), members))
    run.settle()
    for each in (members[0], members[-1]):
        told_ = await explanation(run, each)
        assert told_.sentence == (
            f"{each.key} alone fits 2 of 2 nodes, but its gang default/train is placed as a whole or not at all: "
            "20 of its members must be placed, and 2 found room; no node took default/m02 and 17 others "
            "(flotilla gang default/train)"
        )
        text = render(told_)
        assert "default/m02 and 17 others fitted nowhere" in " ".join(text.split())
        assert (told_.best != (), "Best nodes" in text) == (True, False)
