"""Worker: what one ask of a gang's round supposes stays for the next one, and never shows in anything else."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.worker.core import WorkerCore
from services.worker.events import Tick
from services.worker.supposed_pods import SupposedPods
from shared.cluster.nodetable import NodeTable
from shared.messages.explaining import ExplainNodes
from shared.messages.rounds import ClassAnswer, Given, Propose
from shared.messages.state import PodNominated
from shared.model.load import PodLoad, load_of
from shared.model.objects import Pod
from testing.builders import pod, selector
from tests.rounds.support import BY_NAME, delta, placed, proposals, small_node, small_pod, state, worker
from tests.rounds.world import World
from tests.worker.test_what_if import ask, everything, loaded, nodes_for

On = Sequence[tuple[Pod, str]]
P, Q, R = small_pod("p"), small_pod("q"), small_pod("r")


class Counted(NodeTable):
    """`moves`: pods that were placed or removed."""

    moves = 0

    def add_pod(self, *args: object, **named: object) -> None:
        super().add_pod(*args, **named)  # type: ignore[arg-type]
        self.moves += 1

    def remove_pod(self, uid: str) -> None:
        super().remove_pod(uid)
        self.moves += 1


def supposing(given: Sequence[tuple[str, str, int]], loads: Sequence[PodLoad], gone: Sequence[str] = ()) -> Propose:
    asked = [Given(uid, where, load) for uid, where, load in given]
    return Propose(1, 1, 1, 0, BY_NAME, [], given=asked, loads=list(loads), gone=list(gone))


def a_table() -> Counted:
    table = Counted()
    table.add_node(small_node("n"))
    table.add_pod("there", "n", load_of(small_pod("there")))
    table.moves = 0
    return table


def test_only_what_differs_from_the_last_ask_is_moved() -> None:
    table, supposed = a_table(), SupposedPods()
    one, two = load_of(small_pod("one")), load_of(small_pod("two", cpu="2"))
    asks = [
        ([("a", "n", 0)], [one], 1),
        ([("a", "n", 0), ("b", "n", 0)], [one], 1),
        ([("a", "n", 0), ("b", "n", 0), ("c", "n", 1)], [one, two], 1),
        ([("a", "n", 0), ("b", "n", 0), ("c", "n", 1)], [one, two], 0),
        ([("a", "n", 0), ("b", "n", 1), ("c", "n", 1)], [one, two], 4),
        ([("a", "n", 0), ("b", "n", 1), ("c", "n", 1)], [one, one], 4),
        ([("a", "elsewhere", 0)], [one], 3),
    ]
    for given_, loads, moves in asks:
        before = table.moves
        with supposed.on(table, supposing(given_, loads)):
            shown = {each: load for each, _, load in table.placed() if each != "there"}
        assert shown == {uid: loads[load] for uid, where, load in given_ if where == "n"}
        assert table.moves - before == moves
    supposed.clear()
    assert not supposed
    assert [uid for uid, _, _ in table.placed()] == ["there"]


def test_other_victims_begin_with_the_real_table() -> None:
    table, supposed = a_table(), SupposedPods()
    load = load_of(small_pod("one"))
    for gone, shown in [(["there"], {"a"}), ([], {"there", "a"}), (["there"], {"a"})]:
        with supposed.on(table, supposing([("a", "n", 0)], [load], gone)):
            assert {uid for uid, _, _ in table.placed()} == shown
    with supposed.on(other := a_table(), supposing([("b", "n", 0)], [load])):
        assert {uid for uid, _, _ in table.placed()} == {"there"}
        assert {uid for uid, _, _ in other.placed()} == {"there", "b"}


def test_an_exception_takes_everything_back() -> None:
    table, supposed = a_table(), SupposedPods()
    load = load_of(small_pod("one"))
    with supposed.on(table, supposing([("a", "n", 0)], [load])):
        pass
    with pytest.raises(ZeroDivisionError), supposed.on(table, supposing([("a", "n", 0), ("b", "n", 0)], [load])):
        raise ZeroDivisionError
    with pytest.raises(IndexError), supposed.on(table, supposing([("a", "n", 0), ("b", "n", 7)], [load])):
        raise AssertionError
    assert not supposed
    assert [uid for uid, _, _ in table.placed()] == ["there"]


# Nothing else sees it


def test_a_delta_about_a_given_pod_changes_the_real_table() -> None:
    """The binding of an earlier attempt shows on another node, and then on the one that was supposed."""
    core = loaded()
    assert sorted(nodes_for(core, ask(1, P, given=[(Q, "a"), (R, "a")]))) == ["b", "b"]
    core.handle(placed(2, Q, "b"), 0.0)
    assert core.table.node_of(Q.uid) == "b"
    assert sorted(nodes_for(core, ask(2, P, given=[(Q, "a"), (R, "a")]))) == ["b"]
    core.handle(placed(3, Q, "a"), 0.0)
    assert sorted(nodes_for(core, ask(3, P, given=[(Q, "a"), (R, "a")]))) == ["b", "b"]
    assert core.table.node_of(Q.uid) == "a"
    assert core.table.node_of(R.uid) is None


def test_a_nomination_that_comes_meanwhile_stays() -> None:
    core, fresh = loaded(), loaded()
    nomination = delta(2, PodNominated(Q.uid, "b", 0, Q.key), loads=[load_of(Q)])
    nodes_for(core, ask(1, P, given=[(Q, "a")]))
    for each in (core, fresh):
        each.handle(nomination, 0.0)
    assert sorted(nodes_for(core, ask(2, P, given=[(Q, "a")]))) == ["a", "b", "b"]
    assert everything(core) == everything(fresh)


def test_explanations_and_single_pods_see_the_real_table() -> None:
    core = loaded()
    assert sorted(nodes_for(core, ask(1, P, given=[(Q, "a"), (R, "a")]))) == ["b", "b"]
    (explained,) = core.handle(ExplainNodes(1, 1, 1, 0, "default-scheduler", small_pod("new", cpu="2")), 0.0)
    assert explained.message.findings.feasible == 2  # type: ignore[union-attr]
    assert sorted(nodes_for(core, ask(2, P))) == ["a", "a", "b", "b"]


def test_labels_that_only_supposed_pods_read_are_not_named() -> None:
    core = loaded()
    numbered = pod("numbered").require_no_pods(
        "kubernetes.io/hostname", selector({"apps.kubernetes.io/pod-index": "0"})
    )
    for number in (1, 2):
        answer = proposals(core.handle(ask(number, P, given=[(numbered.build(), "a")] * number), 0.0))
        assert answer.individual_labels == []


# Answers


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10**6), st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8), st.booleans()), max_size=8))
def test_every_ask_is_answered_as_by_a_worker_that_never_heard_the_others(
    seed: int, asks: list[tuple[int, int, bool]]
) -> None:
    """Each ask keeps some of the given pods of the one before, and names some others; time passes between some."""
    world = World(seed)
    cluster, names = world.nodes(4), [f"n{i:02}" for i in range(4)]
    there = [(each, world.dice.choice(names)) for each in world.pods(4)]
    wanted, members = world.pods(2), world.pods(8)

    def made() -> WorkerCore:
        core = worker()
        core.start(0.0)
        core.handle(state(1, *cluster, pods=there), 0.0)
        return core

    def told(core: WorkerCore, propose: Propose) -> list[ClassAnswer]:
        return proposals(core.handle(propose, 0.0)).answers

    core, now = made(), list[tuple[Pod, str]]()
    before = everything(core)
    for number, (kept, wanted_in_all, is_later) in enumerate(asks, start=1):
        left = [each for each in members if all(each is not other for other, _ in now[:kept])]
        more = left[: max(wanted_in_all - len(now[:kept]), 0)]
        now = [*now[:kept], *((each, world.dice.choice(names)) for each in more)]
        if is_later:
            core.handle(Tick(), 0.0)
        assert told(core, ask(number, *wanted, given=now)) == told(made(), ask(number, *wanted, given=now))
        core.validate()
    assert everything(core) == before
