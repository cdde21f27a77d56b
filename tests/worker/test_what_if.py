"""Worker: judges as if the members of a gang that are decided so far were there, and forgets about them afterwards."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.worker.core import WorkerCore
from services.worker.what_if import pods_placed
from shared.cluster.nodetable import NodeTable
from shared.cluster.volumes import VolumeDecision
from shared.messages.codec import copy
from shared.messages.rounds import ClassAnswer, Given, Propose
from shared.messages.state import ObjectUpserted, PodNominated
from shared.model.load import load_of
from shared.model.objects import ClusterObject, Pod
from testing.builders import node, pod
from tests.plugins.volumes.storage import HOSTNAME, claim, storage_class, volume
from tests.rounds.support import (
    BY_NAME,
    answers,
    ask_for,
    delta,
    placed,
    plain_table,
    proposals,
    small_node,
    small_pod,
    state,
    worker,
)
from tests.rounds.world import World

A, B = small_node("a", cpu=2), small_node("b", cpu=2)
P, Q, R = small_pod("p"), small_pod("q"), small_pod("r")


def ask(number: int, *pods: Pod, given: Sequence[tuple[Pod, str]] = (), **more: Any) -> Propose:
    there = [Given(each.uid, where, i, more.get("volumes")) for i, (each, where) in enumerate(given)]
    asks = [ask_for(each, count=4) for each in pods]
    return copy(Propose(1, number, 1, 0, BY_NAME, asks, given=there, loads=[load_of(each) for each, _ in given]))


def loaded(*pods: tuple[Pod, str]) -> WorkerCore:
    core = worker()
    core.start(0.0)
    core.handle(state(1, A, B, pods=pods), 0.0)
    return core


def nodes_for(core: WorkerCore, propose: Propose) -> list[str]:
    (answer,) = answers(core.handle(propose, 0.0)).values()
    return answer.ladder.nodes


def everything(core: WorkerCore) -> object:
    table = core.table
    kept = {where: sorted(table.nominations.of(where)) for where in table.nominations}
    return plain_table(table), kept, list(table.objects.all())


def test_given_pods_take_their_room_for_one_answer() -> None:
    core = loaded()
    before = everything(core)
    assert sorted(nodes_for(core, ask(1, P))) == ["a", "a", "b", "b"]
    assert sorted(nodes_for(core, ask(2, P, given=[(Q, "a"), (R, "a")]))) == ["b", "b"]
    assert everything(core) == before
    assert sorted(nodes_for(core, ask(3, P))) == ["a", "a", "b", "b"]


def test_given_pods_of_other_shards_are_the_business_of_others() -> None:
    core = loaded()
    assert sorted(nodes_for(core, ask(1, P, given=[(Q, "elsewhere")]))) == ["a", "a", "b", "b"]


def test_a_given_pod_that_has_come_meanwhile_is_counted_once() -> None:
    core = loaded()
    core.handle(placed(2, Q, "a"), 0.0)
    assert sorted(nodes_for(core, ask(1, P, given=[(Q, "a")]))) == ["a", "b", "b"]
    assert core.table.node_of(Q.uid) == "a"


def test_a_given_pod_that_an_earlier_attempt_still_holds_elsewhere_counts_on_both_nodes() -> None:
    """The snapshot may forget the attempt before the decision arrives; then only the given node has the pod."""
    core = loaded()
    core.handle(placed(2, Q, "b"), 0.0)
    before = everything(core)
    assert sorted(nodes_for(core, ask(1, P))) == ["a", "a", "b"]
    assert sorted(nodes_for(core, ask(2, P, given=[(Q, "a")]))) == ["a", "b"]
    assert everything(core) == before
    assert core.table.node_of(Q.uid) == "b"


def test_for_a_given_pod_no_room_is_kept_beside_it() -> None:
    core = loaded()
    core.handle(delta(2, PodNominated(Q.uid, "b", 0, Q.key), loads=[load_of(Q)]), 0.0)
    before = everything(core)
    assert sorted(nodes_for(core, ask(1, P))) == ["a", "a", "b"]
    assert sorted(nodes_for(core, ask(2, P, given=[(Q, "a")]))) == ["a", "b", "b"]
    assert everything(core) == before


def test_what_fails_meanwhile_leaves_no_trace() -> None:
    core = loaded()
    before = everything(core)
    with (
        pytest.raises(ZeroDivisionError),
        pods_placed(core.table, [Given(Q.uid, "a", 0)], [load_of(Q)]),
    ):
        assert core.table.node_of(Q.uid) == "a"
        raise ZeroDivisionError
    assert everything(core) == before


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 8), st.integers(0, 6), st.integers(0, 6))
def test_it_answers_as_if_the_given_pods_had_been_placed(seed: int, nodes: int, there: int, more: int) -> None:
    """What it has worked out before, and works out afterwards, is as right as ever."""
    world = World(seed)
    cluster, names = world.nodes(nodes), [f"n{i:02}" for i in range(nodes)]
    pods = [(each, world.dice.choice(names)) for each in world.pods(there + more)]
    wanted = world.pods(3)

    def made(on: Sequence[tuple[Pod, str]]) -> WorkerCore:
        core = worker()
        core.start(0.0)
        core.handle(state(1, *cluster, pods=on), 0.0)
        return core

    def told(core: WorkerCore, propose: Propose) -> list[ClassAnswer]:
        return proposals(core.handle(propose, 0.0)).answers

    core = made(pods[:there])
    before = told(core, ask(1, *wanted))
    assert told(core, ask(2, *wanted, given=pods[there:])) == told(made(pods), ask(2, *wanted))
    assert told(core, ask(3, *wanted)) == before
    core.validate()


# Volumes


def with_objects(*objects: ClusterObject) -> WorkerCore:
    core = worker()
    core.start(0.0)
    hosts = [node(name).capacity(cpu=4, memory="8Gi").label({HOSTNAME: name}).build() for name in "ab"]
    core.handle(state(1, *hosts), 0.0)
    core.handle(delta(2, *(ObjectUpserted(each) for each in objects)), 0.0)
    return core


def test_a_volume_that_is_given_away_is_not_offered_to_another() -> None:
    objects = [volume("v", nodes={HOSTNAME: ["a"]}), claim("one"), claim("two")]
    core = with_objects(storage_class(provisioner="kubernetes.io/no-provisioner"), *objects)
    before = everything(core)
    one, two = (pod(name).claim(name).build() for name in ("one", "two"))
    assert nodes_for(core, ask(1, two))
    taken = VolumeDecision(bindings=[("default/one", "v")])
    assert not nodes_for(core, ask(2, two, given=[(one, "a")], volumes=taken))
    assert everything(core) == before
    assert nodes_for(core, ask(3, two))


@pytest.mark.parametrize(
    "decided", [VolumeDecision(bindings=[("default/data", "v")]), VolumeDecision(provisions=["default/data"])]
)
def test_pods_that_share_a_claim_go_where_its_volume_will_be(decided: VolumeDecision) -> None:
    core = with_objects(storage_class(), volume("v", nodes={HOSTNAME: ["a"]}), claim("data"))
    before = everything(core)
    kind = pod("p").claim("data")
    first, second = kind.build(), kind.uid("second").build()
    assert set(nodes_for(core, ask(1, second))) == {"a", "b"}
    assert set(nodes_for(core, ask(2, second, given=[(first, "a")], volumes=decided))) == {"a"}
    assert everything(core) == before


def test_without_given_pods_the_table_is_not_touched() -> None:
    table = NodeTable()
    table.add_node(A)
    generation = table.generation.copy()
    with pods_placed(table, [], []):
        pass
    assert (table.generation == generation).all()
