"""What a worker knows of the whole cluster: objects, nominations, shared hostnames; and what pods' places tell."""

import msgspec
import pytest

from services.worker import table_builder
from services.worker.core import WorkerCore
from services.worker.events import Loaded
from shared.cluster.nodetable import shard_of
from shared.messages.codec import copy
from shared.messages.state import (
    Change,
    Delta,
    NodeState,
    NominationGone,
    ObjectRemoved,
    ObjectUpserted,
    PodNominated,
    PodOnNode,
    PodPlaced,
    SharedHostnames,
    State,
)
from shared.model.load import load_of
from shared.model.objects import ClusterObject, ObjectKind, key_of, kind_of
from tests.rounds.support import delta, small_node, small_pod, worker
from tests.samples import an_object

A, B = small_node("a"), small_node("b")
P, Q = small_pod("p"), small_pod("q")
LOADS = [load_of(P), load_of(Q)]
ALL = [an_object(kind) for kind in ObjectKind]
NOT_A = next(name for name in map(str, range(99)) if shard_of(name, 2) != shard_of("a", 2))


def whole(seq: int = 1, **more: object) -> State:
    nodes = [NodeState(A, {P.uid: PodOnNode(0, P.key, 60.0)}), NodeState(B)]
    return copy(msgspec.structs.replace(State(1, seq, nodes, LOADS), **more))


def loaded(**more: object) -> WorkerCore:
    core = worker()
    core.handle(whole(1, **more), 0.0)
    assert core.loaded and not core.refused
    return core


def told(core: WorkerCore, *changes: Change) -> None:
    """In the next delta."""
    core.handle(copy(delta(core.seq + 1, *changes, loads=LOADS)), 1.0)
    assert not core.refused
    core.validate()
    core.table.objects.validate()


def objects(core: WorkerCore) -> dict[tuple[ObjectKind, str], ClusterObject]:
    return {(kind_of(obj), key_of(obj)): obj for obj in core.table.objects.all()}


def promised(core: WorkerCore) -> dict[str, dict[str, str]]:
    nominations = core.table.nominations
    return {node: {uid: each.key for uid, each in nominations.of(node).items()} for node in nominations}


def test_it_loads_every_kind_and_follows_each() -> None:
    core = loaded(objects=ALL)
    assert objects(core) == {(kind_of(obj), key_of(obj)): obj for obj in ALL}
    for obj in ALL:
        told(core, ObjectRemoved(kind_of(obj), key_of(obj)))
    assert objects(core) == {}
    told(core, *map(ObjectUpserted, ALL))
    assert list(objects(core).values()) == ALL


@pytest.mark.parametrize("kind", ObjectKind)
def test_only_the_kind_that_changes_has_a_new_generation(kind: ObjectKind) -> None:
    core = loaded()
    told(core, ObjectUpserted(an_object(kind)))
    assert [of for of in ObjectKind if core.table.objects.generation(of)] == [kind]


def test_a_state_that_is_loaded_again_brings_its_own() -> None:
    core = loaded(objects=ALL)
    before = core.table.objects
    core.handle(whole(9, objects=ALL[:1]), 1.0)
    assert list(objects(core).values()) == ALL[:1]
    assert core.table.objects is not before


def test_places_tell_the_pod_s_name_and_since_when_it_runs() -> None:
    core = loaded()
    told(core, PodPlaced(Q.uid, "b", 1, Q.key, 90.0))
    placed = {uid: each for row in range(core.table.size) for uid, each in core.table.placed_at(row)}
    assert {uid: (each.key, each.started) for uid, each in placed.items()} == {
        P.uid: (P.key, 60.0),
        Q.uid: (Q.key, 90.0),
    }


def test_nominations_come_move_and_go() -> None:
    core = loaded(nominations=[PodNominated(Q.uid, "a", 1, Q.key)])
    assert promised(core) == {"a": {Q.uid: Q.key}}
    told(core, PodNominated(Q.uid, "b", 1, Q.key))
    assert promised(core) == {"b": {Q.uid: Q.key}}
    assert core.table.nominations.of("b")[Q.uid].kind.load == LOADS[1]
    told(core, NominationGone(Q.uid))
    assert promised(core) == {}
    told(core, NominationGone(Q.uid))


def test_room_on_nodes_of_others_is_their_business() -> None:
    core = worker(shards=(shard_of("a", 2),), count=2)
    core.handle(whole(nominations=[PodNominated(Q.uid, NOT_A, 1, Q.key)]), 0.0)
    assert promised(core) == {}
    told(core, PodNominated(Q.uid, "a", 1, Q.key))
    assert promised(core) == {"a": {Q.uid: Q.key}}
    told(core, PodNominated(Q.uid, NOT_A, 1, Q.key))
    assert promised(core) == {}


def test_shared_hostnames_are_those_told_last() -> None:
    core = loaded(shared_hostnames=["x"])
    assert core.table.shared_hostnames == {"x"}
    told(core, SharedHostnames(["x", "y"]))
    assert core.table.shared_hostnames == {"x", "y"}
    told(core, SharedHostnames([]))
    assert core.table.shared_hostnames == frozenset()


def test_a_nomination_that_names_no_load_is_refused_and_all_is_loaded_again() -> None:
    core = loaded()
    core.handle(delta(2, PodNominated(Q.uid, "a", 7)), 1.0)
    assert [str(cause) for cause in core.refused] == ["a message of 0 loads names number 7"]
    assert not core.loaded


def test_a_table_built_in_steps_is_that_of_the_whole_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_builder, "AT_ONCE", 1)
    nominations = [PodNominated(Q.uid, "a", 1, Q.key)]
    core, at_once = worker(), loaded(objects=ALL, nominations=nominations, shared_hostnames=["h"])
    builder = core.builder(whole(1, objects=ALL, nominations=nominations, shared_hostnames=["h"]))
    sizes = [builder.table.node_count for _ in builder.steps()]
    assert sizes == [1, 2]
    core.handle(Delta(1, 2, [PodPlaced(Q.uid, "b", 1, Q.key)], LOADS), 0.0)
    core.handle(Loaded(builder.state, builder.table), 0.5)
    assert (core.loaded, core.seq) == (True, 2)
    core.validate()
    told(at_once, PodPlaced(Q.uid, "b", 1, Q.key))
    assert sorted(core.table.placed(), key=str) == sorted(at_once.table.placed(), key=str)
    assert objects(core) == objects(at_once)
    assert promised(core) == promised(at_once)
    assert core.table.shared_hostnames == at_once.table.shared_hostnames
