"""Worker: a ladder ends where the ranges move that its scores are normalised over."""

import msgspec
import pytest

from services.worker.core import WorkerCore
from shared.messages.evaluation import Summary
from shared.messages.rounds import ClassAnswer
from shared.messages.state import PodPlaced
from shared.model.load import load_of
from shared.model.objects import Node, Pod
from testing.builders import PodBuilder, expr, node, pod
from tests.rounds.support import answers, ask_for, delta, propose, state, worker

BARE = pod("p").request(cpu=1, memory="1Gi")
LIKING = BARE.prefer_node(100, expr("g", "In", "a")).prefer_node(30, expr("g", "In", "b"))


def a_node(name: str, cpu: int, group: str = "", taints: int = 0) -> Node:
    made = node(name).capacity(cpu=cpu, memory="32Gi").label(g=group)
    for i in range(taints):
        made = made.taint(f"soft-{i}", effect="PreferNoSchedule")
    return made.build()


class Asking:
    """A worker of these nodes that is asked round after round, its placements being taken."""

    def __init__(self, *nodes: Node) -> None:
        self.core: WorkerCore = worker()
        self.core.handle(state(1, *nodes), 0.0)
        self._round = 0
        self._pods = 0

    def answer(self, kind: PodBuilder = LIKING, count: int = 9, guess: Summary | None = None) -> ClassAnswer:
        self._round += 1
        ask = ask_for(kind.build(), "x", count, guess)
        answer = answers(self.core.handle(propose(ask, round_=self._round), 0.0))["x"]
        assert answer.failure is None
        return answer

    def take(self, answer: ClassAnswer, kind: Pod) -> None:
        places: list[PodPlaced] = []
        for where in answer.ladder.nodes:
            self._pods += 1
            places.append(PodPlaced(f"taken-{self._pods}", where, 0))
        self.core.handle(delta(self.core.seq + 1, *places, loads=[load_of(kind)]), 0.0)


def ladder(*nodes: Node, kind: PodBuilder = LIKING, count: int = 9, guess: Summary | None = None) -> tuple[str, bool]:
    if guess is not None:  # what the plugins know of the nodes is as it is
        own = Asking(*nodes).answer(kind, count).summary
        guess = msgspec.structs.replace(guess, plugins=own.plugins, late=own.late)
    made = Asking(*nodes).answer(kind, count, guess).ladder
    return " ".join(made.nodes), made.complete


def test_it_ends_when_the_only_most_preferred_node_is_full() -> None:
    assert ladder(a_node("a", 2, "a"), a_node("b", 4, "b"), a_node("c", 4)) == ("a a", False)


def test_it_does_not_end_before_the_last_of_the_most_preferred_nodes_is_full() -> None:
    nodes, complete = ladder(a_node("a1", 1, "a"), a_node("a2", 2, "a"), a_node("b", 4, "b"), a_node("c", 4))
    assert (sorted(nodes.split()), complete) == (["a1", "a2", "a2"], False)


def test_it_ends_with_what_was_wanted_before_anything_moves() -> None:
    assert ladder(a_node("a", 4, "a"), a_node("b", 4, "b"), a_node("c", 4), count=3) == ("a a a", False)


def test_a_full_node_without_an_extreme_preference_does_not_end_it() -> None:
    kind = BARE.prefer_node(100, expr("g", "In", "a")).prefer_node(90, expr("g", "In", "b"))
    roomy = node("b").capacity(cpu=64, memory="512Gi", pods=1).label(g="b").build()
    assert ladder(a_node("a", 4, "a"), roomy, a_node("c", 9), kind=kind) == ("a b a a a", False)


def test_without_preferences_it_goes_to_the_end() -> None:
    nodes, complete = ladder(a_node("a", 2, "a"), a_node("b", 3, "b"), a_node("c", 1), kind=BARE)
    assert (sorted(nodes.split()), complete) == (sorted("aabbbc"), True)


def test_if_all_nodes_are_preferred_equally_it_goes_to_the_end() -> None:
    nodes, complete = ladder(a_node("b1", 2, "b"), a_node("b2", 1, "b"))
    assert (sorted(nodes.split()), complete) == (["b1", "b1", "b2"], True)


@pytest.mark.parametrize(("most", "untainted"), [(2, 1), (1, 3)])
def test_it_ends_when_the_last_node_with_the_fewest_soft_taints_is_full(most: int, untainted: int) -> None:
    """Whether the lowest or the highest raw score is the best one, either end of the range moves it."""
    nodes = [a_node("clean", untainted), a_node("one", 4, taints=most), a_node("two", 4, taints=most + 1)]
    assert ladder(*nodes, kind=BARE) == (" ".join(["clean"] * untainted), False)


def test_a_tolerated_soft_taint_counts_for_nothing() -> None:
    kind = BARE.tolerate()
    nodes, complete = ladder(a_node("clean", 1), a_node("one", 2, taints=1), kind=kind)
    assert (sorted(nodes.split()), complete) == (["clean", "one", "one"], True)


def test_asked_again_it_goes_on_with_the_range_that_is_left() -> None:
    asking, got, complete = Asking(a_node("a", 2, "a"), a_node("b", 2, "b"), a_node("c", 1)), [], False
    ranges = []
    while not complete:
        answer = asking.answer()
        complete = answer.ladder.complete
        got.append(answer.ladder.nodes)
        ranges.append(answer.summary.ranges.get("NodeAffinity"))
        asking.take(answer, LIKING.build())
    assert [nodes for nodes in got if nodes] == [["a", "a"], ["b", "b"], ["c"]]
    assert ranges[:3] == [(0, 100), (0, 30), (0, 0)]


def wider(low: int, high: int, taints: int = 0) -> Summary:
    """What all shards together know: other nodes are liked less, or more."""
    return Summary(
        nodes=9,
        feasible=9,
        plugins={"ImageLocality": {"nodes": 9, "images": {":latest": 0}}},
        ranges={"NodeAffinity": (low, high), "TaintToleration": (0, taints)},
    )


def test_an_extreme_that_is_another_shards_does_not_move_here() -> None:
    assert ladder(a_node("b", 2, "b"), a_node("c", 1), guess=wider(-5, 100)) == ("b b c", True)


def test_a_shard_whose_nodes_are_all_liked_most_is_not_complete_when_they_are_full() -> None:
    """It has no further placement, but what the other shards offered after its last one is void."""
    assert ladder(a_node("a", 2, "a"), guess=wider(0, 100)) == ("a a", False)


def test_a_shard_whose_last_node_to_fill_is_the_last_with_the_most_taints_is_not_complete() -> None:
    nodes, guess = [a_node("one", 2, taints=1), a_node("two", 1, taints=2)], wider(0, 0, taints=2)
    assert ladder(*nodes, kind=BARE, guess=guess) == ("one one two", False)
