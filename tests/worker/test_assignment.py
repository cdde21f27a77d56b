"""A worker holds the shards that cycle gives it."""

from services.worker.events import End, Reload
from shared.cluster.nodetable import shard_of
from shared.messages.identity import NameTaken
from shared.messages.workers import Assign
from tests.rounds.support import answers, ask_for, proposals, propose, small_node, small_pod, state, worker

COUNT = 4
NODES = [small_node(f"n{i}") for i in range(12)]
P = small_pod("p")


def of(*shards: int) -> set[str]:
    return {node.name for node in NODES if shard_of(node.name, COUNT) in shards}


def assign(number: int, *shards: int, epoch: int = 1) -> Assign:
    return Assign(epoch, number, list(shards), COUNT)


def test_a_worker_without_shards_answers_nothing() -> None:
    core = worker(shards=())
    assert core.handle(propose(ask_for(P)), 0.0) == []
    assert not core.loaded


def test_with_its_shards_it_loads_and_answers_what_it_was_asked_before() -> None:
    core = worker(shards=())
    core.handle(propose(ask_for(P)), 0.0)
    assert core.handle(assign(1, 0, 2), 0.0) == [Reload()]
    (answer,) = [core.handle(state(5, *NODES), 0.1)]
    assert proposals(answer).shards == [0, 2]
    assert set(core.table.names) - {""} == of(0, 2)


def test_other_shards_are_loaded_whole() -> None:
    core = worker(shards=())
    core.handle(assign(1, 0), 0.0)
    core.handle(state(5, *NODES), 0.1)
    assert core.handle(assign(2, 0, 1), 0.2) == [Reload()]
    assert not core.loaded
    assert core.handle(propose(ask_for(P)), 0.3) == []
    assert proposals(core.handle(state(6, *NODES), 0.4)).shards == [0, 1]
    assert set(core.table.names) - {""} == of(0, 1)


def test_the_same_shards_under_another_number_cost_nothing() -> None:
    core = worker(shards=())
    core.handle(assign(1, 0), 0.0)
    core.handle(state(5, *NODES), 0.1)
    assert core.handle(assign(2, 0), 0.2) == []
    assert core.assignment == (1, 2)
    assert answers(core.handle(propose(ask_for(P)), 0.3))["p"].ladder.nodes


def test_an_older_assignment_is_passed_over() -> None:
    core = worker(shards=())
    core.handle(assign(3, 0, epoch=2), 0.0)
    assert core.handle(assign(9, 1, epoch=1), 0.1) == []
    assert core.handle(assign(2, 1, epoch=2), 0.1) == []
    assert core.shards == {0}


def test_it_ends_if_another_process_has_its_name() -> None:
    core = worker(shards=())
    core.incarnation = "second"
    core.handle(assign(1, 0, epoch=4), 0.0)
    assert core.handle(NameTaken(3, core.name, "second", "first", 1.0), 0.1) == [], "a cycle that was deposed says so"
    assert core.handle(NameTaken(4, core.name, "third", "first", 1.0), 0.2) == [], "it is for another one"
    taken = NameTaken(4, core.name, "second", "first", 1.0)
    assert core.handle(taken, 0.3) == [End(taken)]
