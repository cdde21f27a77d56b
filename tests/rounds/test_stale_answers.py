"""What an answer says of other classes counts only as long as those are judged as they were then."""

import pytest

from services.cycle.events import Decided
from services.snapshot import events as snapshot
from shared.model.objects import Node, Pod
from testing.builders import node, pod
from testing.inprocess.pipeline import Pipeline, bound
from tests.rounds.known_answers import Run
from tests.rounds.support import small_node, small_pod

IMAGE = "example.com/large:v1"
BYTES = 1_500_000_000


def a_node(name: str, *, has_image: bool = False) -> Node:
    made = node(name).capacity(cpu=10, memory="10Gi", pods=110).label({"name": name})
    return (made.image(IMAGE, BYTES) if has_image else made).build()


def on_n0(i: int) -> Pod:
    return pod(f"a{i}").request(cpu="10m", memory="10Mi").node_selector(name="n0").build()


def of_image(i: int) -> Pod:
    return pod(f"b{i}").container(image=IMAGE).request(cpu="300m", memory="300Mi").build()


def once_more_nodes_have_the_image(workers: int, round_size: int) -> Run:
    """Both classes are known. The image of one was on one node when it was last evaluated, and is on three now."""
    run = Run(workers, round_size)
    full = [f"x{i}" for i in range(8)]
    run.add_nodes([a_node("n0", has_image=True), a_node("m"), a_node("m2"), *map(a_node, full)])
    run.observe(snapshot.PodSeen(bound(pod("load").request(cpu="3", memory="3Gi").build(), "n0")))
    for name in full:
        run.observe(snapshot.PodSeen(bound(pod(f"on-{name}").request(cpu="9", memory="9Gi").build(), name)))
    run.settle()
    for i in range(4):
        for each in (on_n0(i), of_image(i)):
            run.submit([each])
            run.settle()
    for name in full[:2]:
        run.observe(snapshot.NodeSeen(a_node(name, has_image=True)))
    run.settle()
    return run


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("round_size", [1, 256])
def test_what_an_answer_said_of_a_class_that_is_asked_about_again_does_not_count(workers: int, round_size: int) -> None:
    pods = [on_n0(10), of_image(11), of_image(12), on_n0(13), of_image(14)]
    alone, together = (once_more_nodes_have_the_image(workers, round_size) for _ in range(2))
    for each in pods:
        alone.submit([each])
        alone.settle()
    for some in (pods[:2], pods[2:3], pods[3:]) if round_size > 1 else (pods,):
        together.submit(some)
        together.settle()
    assert {each.uid: together.placed[each.uid][0] for each in pods if each.name[0] == "b"} == {
        each.uid: alone.placed[each.uid][0] for each in pods if each.name[0] == "b"
    }


def test_nothing_is_decided_by_an_answer_once_the_snapshot_has_told_of_a_later_state() -> None:
    """Of the pods in strict mode, only the one that was asked about misses a node that came while its answer was on its
    way.
    """
    run = Pipeline(shards=1, round_size=1)
    run.add_nodes([small_node(f"n{i}") for i in range(4)])
    run.settle()
    for i in range(4):
        for cpu in ("100m", "200m"):
            run.submit([small_pod(f"p{cpu}-{i}", cpu=cpu)])
            run.settle()
    run.cycle.rounds.known.clear()
    run.submit([small_pod(f"q{i:02}", cpu="100m" if i % 2 else "200m") for i in range(30)])
    run.observe(snapshot.NodeSeen(node("large").capacity(cpu=80, memory="80Gi", pods=110).build()))
    run.settle()
    nodes = [outcome.node for uid, outcome in run.outcomes.items() if "/q" in uid and isinstance(outcome, Decided)]
    assert len(nodes) == 30
    assert sum(node != "large" for node in nodes) <= 1
