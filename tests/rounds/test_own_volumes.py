"""Pods with volume claims of their own: judged as one class, they are decided as if each were judged by its names."""

import random
from collections.abc import Iterator

import msgspec
import pytest

from services.cycle.round.assign import assign
from services.cycle.round.ladder_merge import LadderMerge
from shared.cluster.volumes import VolumeDecision
from shared.messages.evaluation import Ties
from shared.messages.queue import QueuedVolumes
from shared.messages.rounds import ClassAnswer, ClassAsk, Ladder, Propose
from shared.messages.state import Commit, Committed, Decision, ObjectUpserted
from shared.model.objects import DEFAULT_SCHEDULER, ClusterObject, Node, Pod
from shared.plugins.volumes.own_claims import content_of_pod
from testing.builders import node, pod
from testing.inprocess import batches
from testing.inprocess.batches import batch_of, pod_info
from testing.inprocess.pipeline import Pipeline, reliable
from tests.plugins.volumes.storage import HOSTNAME, ZONE, attachment, claim, csi, csi_node, storage_class, volume
from tests.rounds.script import Script, asked, offer, placements
from tests.rounds.support import QUIET, answers, delta, propose, state, worker

DRIVER = "csi.example.com"
BY_NAME = Ties(mode="name")


def a_node(number: int, cpu: int = 8) -> Node:
    labels = {HOSTNAME: f"n{number}", ZONE: f"z{number % 3}"}
    return node(f"n{number}").capacity(cpu=cpu, memory="32Gi").label(labels).build()


def bound(name: str, zone: str = "", *, handle: str = "", mode: str = "ReadWriteOnce") -> list[ClusterObject]:
    """A claim and its volume."""
    nodes = {ZONE: [zone]} if zone else None
    made = volume(f"v-{name}", csi=csi(handle or name), kept_for=name, nodes=nodes, phase="Bound")
    return [claim(name, volume=f"v-{name}", modes=[mode]), made]


class World:
    """A small cluster in which volumes decide much: few attach to a node, and most are in one zone."""

    def __init__(self, seed: int) -> None:
        self._dice = dice = random.Random(seed)
        self.nodes = [a_node(i, dice.choice([4, 8])) for i in range(dice.randint(3, 8))]
        self.objects: list[ClusterObject] = [storage_class("delayed"), storage_class("static", "none.example.com")]
        self.objects += [csi_node(each.name, {DRIVER: dice.randint(1, 4)}) for each in self.nodes[1:]]
        self.placed: list[Pod] = []
        self.pods = [self._pod(i) for i in range(dice.randint(6, 24))]

    def _pod(self, number: int) -> Pod:
        dice, spec = self._dice, pod(f"p{number:02}").request(cpu="100m")
        for k in range(dice.choice([1, 1, 1, 2])):
            name = f"c{number}-{k}"
            kind = dice.random()
            if kind < 0.6:
                self.objects += bound(name, dice.choice(["", "z0", "z1"]))
            elif kind < 0.75:
                self.objects.append(claim(name, dice.choice(["delayed", "static", "unknown"])))
            elif kind < 0.85:
                name = f"shared-{dice.randrange(2)}"
                self.objects += bound(name)
                if dice.random() < 0.5:
                    there = dice.choice(self.nodes).name
                    self.placed.append(pod(f"user-{number}").on(there).claim(name).build())
            elif kind < 0.9:
                self.objects += [*bound(name), attachment(dice.choice(self.nodes).name, f"v-{name}")]
            else:
                self.objects += bound(name, handle="one-disk", mode=dice.choice(["ReadWriteOnce", "ReadWriteOncePod"]))
            spec = spec.claim(name)
        return spec.build()

    def decide(self, *, shards: int, round_size: int) -> tuple[dict[str, tuple[str, object]], int]:
        """By pod: where it goes with which volumes, or why nowhere; and the conflicts."""
        conflicts = 0
        made: dict[str, tuple[str, object]] = {}

        def note(message: object) -> tuple[float, ...]:
            nonlocal conflicts
            if isinstance(message, Commit):
                made.update({each.uid: (each.node, each.assignment.volumes) for each in message.decisions})
            elif isinstance(message, Committed):
                conflicts += len(message.conflicts)
            return tuple(reliable(message))

        pipeline = Pipeline(QUIET, shards=shards, round_size=round_size, ties=BY_NAME, fate=note, binds=False)
        pipeline.add_nodes(self.nodes)
        pipeline.add_objects(self.objects)
        pipeline.add_pods(self.placed)
        pipeline.settle()
        pipeline.submit(self.pods)
        pipeline.settle()
        reasons = {uid: ("", getattr(found, "unfit", found)) for uid, found in pipeline.outcomes.items()}
        return reasons | made, conflicts


@pytest.fixture
def judged_by_name(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    with monkeypatch.context() as patch:
        patch.setattr(batches, "queued_volumes", lambda *about: None)
        yield patch


@pytest.mark.parametrize("seed", range(20))
def test_decisions_are_those_by_name(seed: int, judged_by_name: pytest.MonkeyPatch) -> None:
    world = World(seed)
    expected, _ = world.decide(shards=1, round_size=1)
    judged_by_name.undo()
    found, conflicts = world.decide(shards=seed % 3 + 1, round_size=1)
    assert found == expected
    assert conflicts == 0


@pytest.mark.parametrize("seed", range(6))
def test_a_round_of_one_class_decides_as_one_by_one_and_by_name(seed: int, judged_by_name: pytest.MonkeyPatch) -> None:
    world = World(seed)
    world.objects = [each for each in world.objects if not each.name.startswith(("c", "v-", "shared"))]
    world.objects += [csi_node(each.name, {DRIVER: 1 + seed % 4}) for each in world.nodes[1:]]
    world.objects += [obj for i in range(24) for obj in bound(f"c{i}", "z1")]
    world.pods, world.placed = [pod(f"p{i:02}").request(cpu="1").claim(f"c{i}").build() for i in range(24)], []
    expected, _ = world.decide(shards=1, round_size=1)
    judged_by_name.undo()
    assert world.decide(shards=seed % 3 + 1, round_size=256) == (expected, 0)


@pytest.mark.parametrize("shards", [1, 2])
def test_a_round_attaches_no_more_volumes_than_a_node_can_have(shards: int) -> None:
    """A volume of one's own counts for each pod, on whichever node it goes to."""
    world = World(0)
    world.placed = []
    world.nodes = [a_node(0), a_node(1)]
    world.objects = [csi_node("n0", {DRIVER: 3}), csi_node("n1", {DRIVER: 2})]
    world.objects += [obj for i in range(8) for obj in bound(f"c{i}")]
    world.pods = [pod(f"p{i}").claim(f"c{i}").build() for i in range(8)]
    found, conflicts = world.decide(shards=shards, round_size=256)
    assert sorted(where for where, _ in found.values()) == ["", "", "", "n0", "n0", "n0", "n1", "n1"]
    assert conflicts == 0


# What the queue saw is old


OWN = QueuedVolumes(["data"], b"content")


def test_if_a_workers_state_shows_other_claims_the_pods_are_judged_by_name() -> None:
    script = Script("w", frameworks=QUIET)
    made = pod("p").claim("data").build()
    batch = batch_of([made])
    batch = msgspec.structs.replace(batch, pods=[msgspec.structs.replace(batch.pods[0], volumes=OWN)])
    (first,) = asked(script.handle(batch)).values()
    (ask,) = first.classes
    assert (ask.own_volumes, ask.pod) == (b"content", made)
    (second,) = asked(script.answer(first, "w", offer(ask.class_id, ("n", 9)))).values()
    (again,) = second.classes
    assert second.round > first.round
    assert (again.own_volumes, again.pod) == (b"", made)
    assert again.class_id != ask.class_id
    effects = script.settle({"w": second}, w=[("n", 9)], until="SendCommit")
    assert placements(effects) == {"p": "n"}


def test_a_claim_that_changes_after_the_evaluation_is_a_conflict_and_then_counts() -> None:
    reasons: list[str] = []
    decided: list[Decision] = []

    def note(message: object) -> tuple[float, ...]:
        if isinstance(message, Propose) and not reasons and message.classes[0].own_volumes:
            moved = bound("a", "z1")[1]
            pipeline.observe_later(moved)
        if isinstance(message, Commit):
            decided.extend(message.decisions)
        if isinstance(message, Committed):
            reasons.extend(each.reason for each in message.conflicts)
        return tuple(reliable(message))

    class Changing(Pipeline):
        later: ClusterObject | None = None

        def observe_later(self, obj: ClusterObject) -> None:
            """When the decision is on its way."""
            self.later = obj

        def step(self) -> bool:
            if self.later is not None and decided:
                later, self.later = self.later, None
                self.add_objects([later])
            return super().step()

    pipeline = Changing(QUIET, ties=BY_NAME, fate=note, binds=False)
    pipeline.add_nodes([a_node(0), a_node(1)])
    pipeline.add_objects(bound("a", "z0"))
    pipeline.settle()
    pipeline.submit([pod("p").claim("a").build()])
    pipeline.settle()
    assert reasons == ["its volume claims have changed since the evaluation"]
    assert [(each.node, bool(each.own_volumes)) for each in decided] == [("n0", True), ("n1", False)]


# The worker


def test_a_worker_judges_a_class_by_another_pod_once_claims_have_changed() -> None:
    core = worker()
    core.handle(state(1, a_node(0)), 0.0)
    core.handle(delta(2, ObjectUpserted(storage_class()), *(ObjectUpserted(claim(name)) for name in "ab")), 0.0)
    a, b = (pod(name).claim(name).build() for name in "ab")
    content = content_of_pod(a, core.table.objects)
    assert content is not None
    assert content == content_of_pod(b, core.table.objects)

    def asks(which: Pod) -> ClassAnswer:
        ask = ClassAsk("c", DEFAULT_SCHEDULER, 2, which, own_volumes=content)
        return answers(core.handle(propose(ask, round_=core.table.load_log.position + 2), 0.0))["c"]

    answer = asks(a)
    assert answer.own_volumes
    assert answer.ladder.volumes == [VolumeDecision(provisions=["0"])] * 2, "claims are numbered"
    core.handle(delta(3, ObjectUpserted(claim("a", selected="n0"))), 0.0)
    assert asks(b).ladder.volumes == answer.ladder.volumes


def test_a_worker_that_sees_other_claims_says_nothing_of_the_class() -> None:
    core = worker()
    core.handle(state(1, a_node(0)), 0.0)
    ask = ClassAsk("c", DEFAULT_SCHEDULER, 1, pod("a").claim("a").build(), own_volumes=b"content")
    assert answers(core.handle(propose(ask), 0.0)) == {"c": ClassAnswer("c")}


# The cycle


def test_each_pod_gets_the_volumes_of_its_class_for_its_own_claims() -> None:
    infos = [pod_info(pod(name).claim(name).build(), "c") for name in ("a", "b")]
    for info in infos:
        info.volumes = QueuedVolumes([info.name], b"content")
    given: list[VolumeDecision | None] = [VolumeDecision(bindings=[("0", "v1")])] * 2
    ladder = Ladder(["n", "m"], [5, 4], [0, 0], volumes=given, choices=[[["v1"]], [["v1", "v2"]]])
    decided = assign(infos, {"c": LadderMerge("c", [(ladder, 1)])}).decided
    assert [found.volumes for _, found in decided] == [
        VolumeDecision(bindings=[("default/a", "v1")]),
        VolumeDecision(bindings=[("default/b", "v2")]),
    ]


def test_volumes_for_another_pods_claims_fail_the_pod() -> None:
    info = pod_info(pod("a").claim("a").build(), "c")
    info.volumes = QueuedVolumes(["a"], b"content")
    ladder = Ladder(["n"], [5], [0], volumes=[VolumeDecision(provisions=["default/b"])])
    ((_, failure),) = assign([info], {"c": LadderMerge("c", [(ladder, 1)])}).failed
    assert failure.message == "node n was proposed with volumes for other claims than the pod's"


def test_a_worker_without_shards_answers() -> None:
    core = worker(shards=())
    core.handle(state(1), 0.0)
    core.handle(delta(2, ObjectUpserted(storage_class()), ObjectUpserted(claim("a"))), 0.0)
    which = pod("a").claim("a").build()
    content = content_of_pod(which, core.table.objects) or b""
    ask = ClassAsk("c", DEFAULT_SCHEDULER, 1, which, own_volumes=content)
    answer = answers(core.handle(propose(ask), 0.0))["c"]
    assert (answer.own_volumes, answer.ladder.nodes) == (True, [])
