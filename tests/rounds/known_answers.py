"""A pipeline whose known answers are compared with those of the workers, and random clusters for it."""

import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec

from services.cycle.events import Ask, Decided, Effect, SendCommit, Workers
from services.cycle.round.admission import PodInfo
from services.cycle.round.known_answers import Known, KnownAnswers
from services.cycle.round.ladder_merge import Placement
from services.snapshot import events as snapshot
from services.worker.core import WorkerCore
from services.worker.proposer import Proposer
from services.worker.what_if import pods_placed
from shared.framework.loading import load_frameworks
from shared.framework.profile import Framework
from shared.messages.codec import copy
from shared.messages.evaluation import Summary, Ties
from shared.messages.queue import Gang
from shared.messages.rounds import ClassAnswer, ClassAsk, Given, Ladder
from shared.messages.state import Delta, Loads, NeedDeltas
from shared.model.objects import DEFAULT_SCHEDULER, Node, ObjectMeta, Pod, ReplicaSet
from shared.model.wellknown import HOSTNAME, ZONE
from shared.model.workloads import LabelSelectorSpec
from testing.builders import PodBuilder, expr, node, pod, selector
from testing.inprocess.batches import class_of
from testing.inprocess.pipeline import bound
from tests.rounds.support import BY_NAME, FRAMEWORKS
from tests.rounds.world import Audited

PACKING = load_frameworks(
    {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [
            {
                "pluginConfig": [
                    {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}},
                ]
            }
        ],
    }
)
UNSCORED_SPREADING = load_frameworks(
    {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"score": {"disabled": [{"name": "PodTopologySpread"}]}}}],
    }
)
PLAIN = pod("kind").request(cpu="100m", memory="64Mi")
KINDS: Mapping[str, PodBuilder] = {
    "plain": PLAIN.label(app="plain"),
    "large": PLAIN.label(app="large").request(cpu="1"),
    "liking": PLAIN.label(app="liking").prefer_node(50, expr("group", "In", "a")),
    "port": PLAIN.label(app="port").host_port(80),
    "replica of a": PLAIN.label(of="a").owner("ReplicaSet", "a"),
    "replica of b": PLAIN.label(of="b").owner("ReplicaSet", "b"),
    "large replica of b": PLAIN.label(of="b", size="large").request(cpu="1").owner("ReplicaSet", "b"),
    "spread softly": PLAIN.label(app="soft")
    .spread_soft(ZONE, selector(app="soft"))
    .spread_soft(HOSTNAME, selector(app="soft")),
    "spread over nodes": PLAIN.label(app="wide").spread_soft(HOSTNAME, selector(app="wide")),
    "spread over zones": PLAIN.label(app="even").spread_hard(ZONE, selector(app="even")),
    "apart from plain": PLAIN.label(app="apart").require_no_pods(ZONE, selector(app="plain")),
    "rather with large": PLAIN.label(app="near").prefer_pods(10, ZONE, selector(app="large")),
    "with labelled": PLAIN.label(app="with").require_pods(HOSTNAME, selector(bound="yes")),
}
LONERS = ["plain", "large", "liking", "port"]
"""Kinds to which others only matter by the room that they take."""
SPREAD = ["replica of a", "replica of b", "large replica of b", "spread softly", "spread over nodes", "plain"]
"""Kinds with soft rules about topology, and one without any."""
REPLICA_SETS = [
    ReplicaSet(metadata=ObjectMeta(name=name, namespace="default"), spec=LabelSelectorSpec(selector=selector(of=name)))
    for name in "ab"
]


class Checked(KnownAnswers):
    """Compares each answer that it gives with that of the worker, unless that one has seen another state meanwhile.

    The worker is asked as if what was decided since the last commit were placed.
    """

    def __init__(self, run: "Run") -> None:
        super().__init__(run.cycle.frameworks)
        self.given = 0
        self.is_off = False
        self._run = run
        self._loads = Loads()
        self._uncommitted: list[Given] = []
        """What was decided since the last commit."""

    def decided(
        self,
        classes: Iterable[str],
        decided: Collection[tuple[PodInfo, Placement]],
        workers: Collection[str],
        worker_of: Callable[[str], str],
    ) -> None:
        number = self._loads.number
        self._uncommitted += [Given(info.uid, placement.node, number(info.load)) for info, placement in decided]
        super().decided(classes, decided, workers, worker_of)

    def on_committed(self, seq: int, others: int | None, relabelled: int | None, *, is_whole: bool) -> None:
        self._uncommitted.clear()
        super().on_committed(seq, others, relabelled, is_whole=is_whole)

    def answers(
        self, workers: Collection[str], wanted: Mapping[str, int], classes: Mapping[str, PodInfo], keys: Sequence[str]
    ) -> Known:
        if self.is_off:
            return Known({}, {})
        known = super().answers(workers, wanted, classes, keys)
        self._run.send_quiet_deltas()
        alone = sum(wanted.values()) == 1
        for worker, answers in known.answers.items():
            core = self._run.workers[worker]
            if core.seq == self.seq:
                self.given += len(answers)
                with pods_placed(core.table, self._uncommitted, self._loads.items):
                    asked = self._run.asked(core, wanted, known.merged, keys)
                told = [_told(answer, keys, alone=alone) for answer in asked]
                given = [_told(answer, keys, alone=alone) for answer in answers]
                assert given == told, f"{given}\n{told}"
        return known


def _told(answer: ClassAnswer, keys: Sequence[str], *, alone: bool) -> ClassAnswer:
    """Without what only matters to later answers, and values of labels that were not asked for.

    `alone`: of the ladder of a class that has a topology or is followed, only the best placement is compared.
    """
    domains = {key: answer.ladder.domains[key] for key in keys}
    ladder = msgspec.structs.replace(answer.ladder, fills=[], domains=domains)
    told = msgspec.structs.replace(answer, lasts=False, followed=False, ranges={})
    if not alone or not ladder.nodes or (answer.topology is None and not answer.followed):
        return msgspec.structs.replace(told, ladder=_by_stratum(ladder))
    best = min(range(len(ladder.nodes)), key=lambda i: (-ladder.scores[i], -ladder.ties[i], ladder.nodes[i]))
    ladder = msgspec.structs.replace(_chosen(ladder, [best]), complete=False, strata=(), cut=[])
    return msgspec.structs.replace(told, ladder=ladder, runner_up=None)


def _by_stratum(ladder: Ladder) -> Ladder:
    """The order of strata is no matter."""
    strata = [[each or "" for each in ladder.domains[key]] for key in ladder.strata]
    return _chosen(ladder, sorted(range(len(ladder.nodes)), key=lambda i: [of[i] for of in strata]))


def _chosen(ladder: Ladder, order: Sequence[int]) -> Ladder:
    return msgspec.structs.replace(
        ladder,
        nodes=[ladder.nodes[i] for i in order],
        scores=[ladder.scores[i] for i in order],
        ties=[ladder.ties[i] for i in order],
        domains={key: [values[i] for i in order] for key, values in ladder.domains.items()},
        cut=sorted(ladder.cut, key=str),
    )


class Run(Audited):
    """`relabels`: pods get a label when they are bound, as from an API server."""

    def __init__(
        self,
        shards: int,
        round_size: int = 256,
        ties: Ties = BY_NAME,
        frameworks: Mapping[str, Framework] = FRAMEWORKS,
        *,
        relabels: bool = True,
    ) -> None:
        self.asks = 0
        self.commits: list[dict[str, str]] = []
        """The decisions of each: by uid, the node."""
        self._relabels = relabels
        super().__init__(shards=shards, round_size=round_size, ties=ties, frameworks=frameworks)
        self.known = self.cycle.rounds.known = Checked(self)
        self._classes: dict[str, Pod] = {}

    def submit(self, pods: Sequence[Pod], seq: int = 0, gang: Gang | None = None) -> None:
        for each in pods:
            self._classes[class_of(self.cycle.frameworks[DEFAULT_SCHEDULER], each)] = each
        super().submit(pods, seq, gang)

    def _carry_out_cycle(self, effects: Iterable[Effect]) -> None:
        effects = list(effects)
        self.asks += sum(isinstance(effect, Ask) for effect in effects)
        sent = (effect.message for effect in effects if isinstance(effect, SendCommit))
        self.commits += [{each.uid: each.node for each in commit.decisions} for commit in sent]
        super()._carry_out_cycle(effects)

    def observe(self, event: snapshot.Event) -> None:
        if isinstance(event, snapshot.PodSeen) and event.pod.spec.node_name and self._relabels:
            labels = {**event.pod.metadata.labels, "bound": "yes"}
            metadata = msgspec.structs.replace(event.pod.metadata, labels=labels)
            event = snapshot.PodSeen(msgspec.structs.replace(event.pod, metadata=metadata))
        super().observe(event)

    def send_quiet_deltas(self) -> None:
        for effect in self.snapshot.handle(NeedDeltas(1), self.now):
            if isinstance(effect, Delta):
                for name in self.workers:
                    self._to_worker(name, copy(effect))

    def assign_again(self) -> None:
        self._to_cycle(Workers({name: core.shards for name, core in self.workers.items()}, len(self.workers)))

    def asked(
        self, core: WorkerCore, wanted: Mapping[str, int], merged: Mapping[str, Summary], keys: Sequence[str]
    ) -> list[ClassAnswer]:
        cache = self.cycle.rounds.cache
        proposer = Proposer(core.table, core.frameworks, self.cycle.ties, len(core.shards) / core.shard_count)
        asks = [
            ClassAsk(each, DEFAULT_SCHEDULER, count, self._classes[each], merged.get(each, cache.guess(each)))
            for each, count in wanted.items()
        ]
        return proposer.propose(asks, self.cycle.rounds.begun, keys)


class Cluster:
    """Nodes in three zones, most of them small unless they are `roomy`, and pods of several kinds, one by one."""

    def __init__(self, seed: int, nodes: int, *, roomy: bool) -> None:
        self.dice = random.Random(seed)
        self._sizes = ([8, 16], [8, 50]) if roomy else ([1, 2, 8], [4, 20])
        self.nodes = [self._node(f"n{i:02}") for i in range(nodes)]
        self._made = 0

    def _node(self, name: str) -> Node:
        roll = self.dice
        cpu, pods = map(roll.choice, self._sizes)
        made = node(name).capacity(cpu=cpu, memory="8Gi", pods=pods).label(group=roll.choice("ab"))
        for label in ({HOSTNAME: name}, {ZONE: roll.choice("xyz")}):
            made = made.label(label) if roll.random() < 0.97 else made
        return (made.taint("slow", effect="PreferNoSchedule") if roll.random() < 0.2 else made).build()

    def pods(self, kind: str, count: int) -> list[Pod]:
        self._made += count
        of, last = KINDS[kind], self._made
        names = (f"p{i:04}" for i in range(last - count, last))
        return [replace(of, metadata=msgspec.structs.replace(of.metadata, name=name)).build() for name in names]

    def happen(self, run: Run) -> None:
        """Something that is no decision."""
        roll = self.dice
        match roll.choice(("a node", "a pod of others", "a node is full", "a pod is gone", "a heartbeat")):
            case "a node":
                run.observe(snapshot.NodeSeen(self._node(f"n{roll.randrange(40):02}")))
            case "a pod of others":
                kind = roll.choice(sorted(KINDS))
                run.observe(snapshot.PodSeen(bound(self.pods(kind, 1)[0], roll.choice(sorted(run.nodes)))))
            case "a node is full":
                full = named(PLAIN.request(cpu=8), f"full{len(run.placed)}-{run.snapshot.seq}")
                run.observe(snapshot.PodSeen(bound(full, roll.choice(sorted(run.nodes)))))
            case "a pod is gone" if settled := sorted(set(run.placed) - set(run.snapshot.ledger)):
                run.observe(snapshot.PodDeleted(roll.choice(settled)))
            case _:
                run.observe(snapshot.Beat())


def a_while(run: Run, cluster: Cluster, steps: int) -> None:
    """Pods of a kind come in a row or in turn, one or a few at a time. Now and then something else happens."""
    roll, kind = cluster.dice, "plain"
    turns, kinds = roll.choice([0.3, 0.9]), roll.choice([sorted(KINDS), LONERS, SPREAD])
    for _ in range(steps):
        if roll.random() < turns:
            kind = roll.choice(kinds)
        if roll.random() < 0.15:
            cluster.happen(run)
            if roll.random() < 0.9:
                run.settle()
        pods = cluster.pods(kind, roll.choice([1, 1, 1, 2, 5]))
        if roll.random() < 0.1:
            pods += cluster.pods(roll.choice(kinds), 1)
        if roll.random() < 0.1:
            pods += [each for _ in range(8) for each in cluster.pods(roll.choice(kinds), 1)]
        run.submit(pods)
        if roll.random() < 0.9:
            run.settle()
    run.settle()


def one_by_one(run: Run, pods: Sequence[Pod]) -> list[int]:
    """How many asks each pod has cost."""
    costs: list[int] = []
    for each in pods:
        before = run.asks
        run.submit([each])
        run.settle()
        assert isinstance(run.outcomes[each.uid], Decided)
        costs.append(run.asks - before)
    return costs


def named(of: PodBuilder, name: str) -> Pod:
    return replace(of, metadata=msgspec.structs.replace(of.metadata, name=name)).build()
