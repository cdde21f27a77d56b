"""A worker that remembers classes answers as one that sees its nodes for the first time."""

from typing import Any

import msgspec
import pytest

from services.worker import proposer
from services.worker.core import WorkerCore
from services.worker.events import Tick
from shared.cluster.columns import ChangeLog
from shared.cluster.nodetable import NodeTable
from shared.framework.evaluator import ShardEvaluator
from shared.messages.evaluation import Summary
from shared.messages.rounds import ClassAnswer, ClassAsk
from shared.messages.workers import Assign
from shared.model.objects import DEFAULT_SCHEDULER, Node, ObjectKind, object_from
from testing.builders import node, pod
from tests.rounds.support import (
    BY_NAME,
    DEFAULT,
    answers,
    ask_for,
    placed,
    propose,
    small_node,
    small_pod,
    state,
    worker,
)


def loaded(*nodes: Node) -> WorkerCore:
    core = worker()
    core.handle(state(1, *nodes), 0.0)
    return core


def ask(core: WorkerCore, *asks: ClassAsk, number: int = 1) -> dict[str, ClassAnswer]:
    return answers(core.handle(propose(*asks, round_=number), 0.0))


@pytest.mark.parametrize("status", [{}, {"allocation": {}}])
def test_a_class_is_forgotten_after_a_round_if_its_pod_has_devices_of_its_own(status: dict[str, Any]) -> None:
    """Other pods of the class have claims of their own, which are not allocated."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "default/x", "controller": True}
    metadata = {"name": "c", "uid": "c", "ownerReferences": [owner]}
    obj = {"metadata": metadata, "spec": {"devices": {"requests": []}}, "status": status}
    claim = object_from(ObjectKind.RESOURCE_CLAIM, obj)
    claiming = pod("x").uid("default/x").resource_claim("r", "c").build()
    core = worker()
    core.handle(msgspec.structs.replace(state(1, small_node("a")), objects=[claim]), 0.0)
    known = ask_for(claiming)
    assert not ask(core, known)["x"].unknown
    without_pod = msgspec.structs.replace(known, pod=None)
    assert not ask(core, without_pod)["x"].unknown
    assert ask(core, without_pod, number=2)["x"].unknown is bool(status)


# Guesses


def test_classes_with_the_same_images_and_other_guesses_do_not_mix() -> None:
    nodes = [node("a").capacity(cpu=4).image("web:1", 900 << 20).build(), node("b").capacity(cpu=4).build()]
    x, y = (pod(name).container("c", image="web:1").request(cpu=cpu).build() for name, cpu in (("x", 1), ("y", 2)))
    own = ask(loaded(*nodes), ask_for(x))["x"].summary
    images = own.plugins["ImageLocality"]
    assert isinstance(images, dict)
    common = msgspec.structs.replace(own, plugins=own.plugins | {"ImageLocality": {**images, "nodes": 1}})
    rare = msgspec.structs.replace(own, plugins=own.plugins | {"ImageLocality": {**images, "nodes": 1000}})

    def alone(which: str, guess: Summary) -> ClassAnswer:
        return ask(loaded(*nodes), ask_for(x if which == "x" else y, guess=guess))[which]

    core = loaded(*nodes)
    for number, (of_x, of_y) in enumerate([(common, rare), (rare, common), (common, common)], start=1):
        got = ask(core, ask_for(x, guess=of_x), ask_for(y, guess=of_y), number=number)
        assert got == {"x": alone("x", of_x), "y": alone("y", of_y)}
    assert alone("x", common).ladder.scores > alone("x", rare).ladder.scores


# A log that has forgotten


@pytest.mark.parametrize("capacity", [4, 1 << 16])
def test_a_class_that_is_further_behind_than_the_log_has_fresh_ranges(capacity: int) -> None:
    """The most tainted node, and with it an end of the range, is full when the class is asked about again."""
    nodes = [
        node("a").capacity(cpu=4).build(),
        node("b").capacity(cpu=4).taint("s", effect="PreferNoSchedule").build(),
        node("c").capacity(cpu=4).taint("s", effect="PreferNoSchedule").taint("t", effect="PreferNoSchedule").build(),
    ]
    core, fresh = worker(), worker()
    core.handle(state(1, *nodes), 0.0)
    core.table.load_log = ChangeLog(capacity)
    asked, full = ask_for(pod("p").request(cpu=1).build(), count=5), pod("full").request(cpu=4).build()
    assert ask(core, asked)["p"].summary.ranges["TaintToleration"] == (0, 2)
    core.handle(placed(2, full, "c"), 0.0)
    for _ in range(2 * capacity + 1):
        core.table.load_log.append(0)
    fresh.handle(state(2, *nodes, pods=[(full, "c")]), 0.0)
    got = ask(core, asked, number=2)
    assert got["p"].summary.ranges["TaintToleration"] == (0, 1)
    assert got == ask(fresh, asked, number=2)


# Room for few classes


def test_with_room_for_few_classes_every_one_of_a_large_round_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = [small_node(f"n{i}", cpu=i + 1) for i in range(8)]
    asks = [ask_for(small_pod(f"p{i}", cpu=f"{100 + 40 * i}m"), count=3) for i in range(40)]
    plenty = ask(loaded(*nodes), *asks)
    at_most = ShardEvaluator(NodeTable(), DEFAULT, BY_NAME).bytes_per_class()
    monkeypatch.setattr(proposer, "CLASS_MEMORY", 3 * at_most)
    core = loaded(*nodes)
    for number in (1, 2):
        assert ask(core, *asks, number=number) == plenty
    bare = [ClassAsk(each.class_id, DEFAULT_SCHEDULER, 3) for each in reversed(asks)]
    known = [class_id for class_id, answer in ask(core, *bare, number=3).items() if not answer.unknown]
    assert 3 <= len(known) < 40
    assert known == [f"p{39 - i}" for i in range(len(known))], "the last ones are known"


# Many classes that are new on many nodes


def test_new_classes_are_evaluated_a_few_at_a_time() -> None:
    """1. Five new classes are asked about; two are evaluated at once. 2. Heartbeats go out. 3. All are answered."""
    nodes = [small_node(f"n{i}", cpu=i + 1) for i in range(8)]
    asks = [ask_for(small_pod(f"p{i}", cpu=f"{100 + 40 * i}m"), count=3) for i in range(5)]
    expected = ask(loaded(*nodes), *asks)
    core = worker(first_evaluations=2 * len(nodes))
    core.handle(state(1, *nodes), 0.0)
    for _ in range(2):
        assert core.handle(propose(*asks, round_=1), 5.0) == [], "an ask that is repeated goes on"
        assert core.next_deadline() == 5.0
    assert answers(core.handle(Tick(), 5.1)) == expected
    assert core.next_deadline() is None
    assert ask(core, *asks, number=2) == expected, "all are known now"


def test_shards_that_are_lost_end_the_evaluation_of_new_classes() -> None:
    nodes = [small_node("a"), small_node("b", cpu=9)]
    asks = [ask_for(small_pod(f"p{i}", cpu=f"{100 + 40 * i}m")) for i in range(3)]
    expected = ask(loaded(*nodes), *asks)
    core = worker(first_evaluations=1)
    core.handle(state(1, *nodes), 0.0)
    assert core.handle(propose(*asks, round_=1), 5.0) == []
    core.handle(Assign(1, 1, [], core.shard_count), 5.1)
    assert (core.next_deadline() or 9.0) > 5.1, "it does not go on"
    core.handle(Assign(1, 2, [0], core.shard_count), 5.2)
    effects = core.handle(state(2, *nodes), 5.3)
    while not effects:
        assert core.next_deadline() == 5.3
        effects = core.handle(Tick(), 5.3)
    assert answers(effects) == expected
