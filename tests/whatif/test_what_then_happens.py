"""What is answered is what then happens: random questions on a pipeline that then does what was asked.

The pipeline runs the cores of queue, cycle, snapshot and several workers, whose messages travel as bytes; the engine
knows of it only what a live state has.
"""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from services.queue import events as queue
from services.queue.introspection import Introspection
from services.queue.scheduling.cluster_event import ClusterChange, node_events
from services.snapshot import events as snapshot
from shared.messages.binding import Evict
from shared.messages.evaluation import Ties
from shared.messages.inspection import ConfigurationRead, ListQueue
from shared.model.objects import LabelSelector, Node, Pod, encode_json
from testing.builders import PodBuilder, node, pod
from testing.inprocess.pipeline import bound
from tests.rounds.queue_pipeline import LEFT, QueuePipeline
from tests.rounds.support import FRAMEWORKS
from tools.live_state import LiveState
from tools.whatif.answer import Question
from tools.whatif.cores import POD_ADDED
from tools.whatif.engine import Engine, stays

ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
QUESTIONS, PARTS = 200, 4
LONG = 30.0
"""Seconds of virtual time in which everything settles, and back-offs end."""


class World(QueuePipeline):
    """Nodes, pods on them, and pods that wait, by seed."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.ties = Ties(seed=draw.randrange(1 << 16))
        self.made = 0
        self.went: list[tuple[str, str]] = []
        self.leaving: dict[str, float] = {}
        super().__init__(FRAMEWORKS, shards=draw.choice([1, 2, 3]), round_size=1, ties=self.ties)
        self.known = {each.name: each for each in (self.a_node(i) for i in range(draw.randrange(2, 7)))}
        self.add_nodes(self.known.values())
        for _ in range(draw.randrange(0, 12)):
            where = draw.choice(list(self.known.values()))
            self.add_pods([bound(self.a_pod(0).build(), where.name)])
        self.settle_for_long()
        self.submit([self.a_pod(3).build() for _ in range(draw.randrange(0, 5))])
        self.settle_for_long()
        self.went.clear()

    def a_node(self, i: int) -> Node:
        draw = self.draw
        made = node(f"n{i}").label({ZONE: f"z{i % 2}", HOSTNAME: f"n{i}", "disk": draw.choice(["ssd", "hdd"])})
        made = made.capacity(cpu=draw.choice([2, 4]), memory="8Gi", pods=draw.choice([3, 110]))
        return (made.taint("only", "few") if draw.random() < 0.15 else made).build()

    def a_pod(self, most: int) -> PodBuilder:
        """Of priority `most` or less."""
        draw = self.draw
        self.made += 1
        app = draw.choice("ab")
        made = pod(f"p{self.made}").uid(f"u{self.made}").label(app=app).priority(draw.randrange(most + 1))
        made = made.request(cpu=draw.choice(["500m", "1", "1500m", "2"]), memory="256Mi")
        made = made.owner("ReplicaSet", app, "rs") if draw.random() < 0.7 else made
        extra: list[Callable[[PodBuilder], PodBuilder]] = [
            lambda made: made.node_selector(disk=draw.choice(["ssd", "nvme"])),
            lambda made: made.tolerate("only"),
            lambda made: made.require_no_pods(HOSTNAME, LabelSelector(match_labels={"app": app})),
            lambda made: made.require_pods(ZONE, LabelSelector(match_labels={"app": "a"})),
            lambda made: made.spread_hard(ZONE, LabelSelector(match_labels={"app": app})),
            lambda made: made.gate("later"),
            lambda made: made.never_preempting(),
            lambda made: made.host_port(80),
        ]
        return draw.choice(extra)(made) if draw.random() < 0.5 else made

    def live(self) -> LiveState:
        listed = Introspection(self.queue).answer(ListQueue(bodies=True), self.now)
        configuration = ConfigurationRead(ties=self.ties)
        return LiveState(self.now, 1, self.snapshot.state(), listed.pods, configuration, listed.groups)

    def node_of(self, wanted: Pod) -> str:
        placement = self.snapshot.cluster.pods.get(wanted.uid)
        return "" if placement is None else placement.node

    def pods_on(self, name: str) -> list[Pod]:
        there = self.snapshot.cluster.pods.on_node(name)
        return [self._shown[uid] for uid in there]

    # What is done to it

    def do(self, engine: Engine) -> None:
        """Makes what was asked about happen, all at once."""
        question, asked = engine.question, engine.asked()
        changes: list[queue.WatchEvent] = []
        for each in engine.added:
            changes += self.show_node(None, each)
        for each in (self.known[name] for name in question.drain):
            changes += self.show_node(each, replace(each, spec=replace(each.spec, unschedulable=True)))
        for name in (*question.drain, *question.remove):
            for gone in self.pods_on(name):
                if not stays(gone):
                    self.observe(snapshot.PodDeleted(gone.uid))
                    changes.append(ClusterChange(LEFT, gone))
        for name in question.remove:
            changes += self.show_node(self.known[name], None)
        changes += (self._pending(each.pod) for each in asked if not each.origin.startswith("pending"))
        self._tell_queue(queue.WatchEvents(changes))
        self.settle_for_long()

    def show_node(self, before: Node | None, now: Node | None) -> list[ClusterChange]:
        """To the snapshot; returns what the queue is to be told."""
        self.observe(snapshot.NodeSeen(now) if now is not None else snapshot.NodeGone(before.name if before else ""))
        return [ClusterChange(each, before, now) for each in node_events(before, now)]

    def settle_for_long(self) -> None:
        self.run_for(LONG)

    def _bind(self, uid: str, attempt: int, node: str) -> None:
        super()._bind(uid, attempt, node)
        self._tell_queue(queue.WatchEvents([ClusterChange(POD_ADDED, None, self._shown[uid])]))

    def _evict(self, evict: Evict) -> None:
        for each in evict.victims:
            self.went.append((each.uid, evict.uid))
            self.leaving.setdefault(each.uid, self.now + self._grace)
        super()._evict(evict)

    def _go(self, uid: str) -> None:
        """All that leave now are shown together, as a watcher sends what it is shown within 10 ms."""
        now = [each for each, at in self.leaving.items() if at <= self.now]
        gone = [pod for each in now if (pod := self._shown.get(each)) is not None]
        for each in now:
            del self.leaving[each]
            self.observe(snapshot.PodDeleted(each))
        self._tell_queue(queue.WatchEvents([ClusterChange(LEFT, each) for each in gone]))


def a_question(world: World) -> tuple[Question, dict[str, list[Pod]]]:
    draw, names = world.draw, list(world.known)
    pods: list[object] = [_manifest(world.a_pod(5)) for _ in range(draw.randrange(0, 6))]
    change = draw.choice(["", "", "add", "drain", "remove"])
    name = draw.choice(names)
    question = Question(manifests=pods)
    if change == "add":
        question = replace(question, add_nodes=draw.randrange(1, 3), like=name)
    elif change == "drain":
        question = replace(question, drain=[name])
    elif change == "remove":
        question = replace(question, remove=[name])
    return question, {name: world.pods_on(name)} if change else {}


def _manifest(made: PodBuilder) -> dict[str, object]:
    plain: dict[str, Any] = json.loads(encode_json(made.build()))
    for i, container in enumerate(plain["spec"]["containers"]):
        container |= {"name": f"c{i}", "image": "image"}
    return {"apiVersion": "v1", "kind": "Pod", **plain}


@pytest.mark.parametrize("part", range(PARTS))
def test_what_is_answered_is_what_then_happens(part: int) -> None:
    seed = random.randrange(1 << 32)
    for number in range(seed, seed + QUESTIONS // PARTS):
        print(f"seed {number}")
        world = World(random.Random(number))
        question, pods_on = a_question(world)
        live = world.live()
        engine = Engine(live, question, pods_on)
        answer = engine.answer()
        world.do(engine)
        asked = engine.asked()
        keys = {each.pod.uid: each.pod.key for each in asked}
        assert [(each.pod.name, world.node_of(each.pod)) for each in asked] == [
            (said.name, said.node) for said in answer.pods
        ]
        went = {(victim, keys[preemptor]) for victim, preemptor in world.went}
        assert went == {(victim.uid, victim.preemptor) for victim in answer.victims}
        if answer.victims:
            continue  # which pods are tried again when a victim leaves does not matter, but shows in their messages
        for each, said in zip(asked, answer.pods, strict=True):
            info = world.queue.pod(each.pod.uid)
            if info is not None and said.verdict == "unschedulable" and said.origin == "new":
                assert said.message == info.last_failure
