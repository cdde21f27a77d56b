"""Answers that the cycle keeps are those that the workers would give if they were asked."""

import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.cycle.events import Ask, Decided, Effect, Workers
from services.cycle.round.admission import PodInfo
from services.cycle.round.known_answers import AHEAD, Known, KnownAnswers
from services.snapshot import events as snapshot
from services.worker.proposer import Proposer
from shared.framework.lasting import Lasting
from shared.framework.loading import load_frameworks
from shared.framework.profile import Framework
from shared.messages.codec import copy
from shared.messages.evaluation import Summary, Ties
from shared.messages.queue import Gang
from shared.messages.rounds import ClassAnswer, ClassAsk, Ladder, Propose
from shared.messages.state import Delta, NeedDeltas
from shared.model.objects import DEFAULT_SCHEDULER, Node, ObjectMeta, Pod, ReplicaSet
from shared.model.wellknown import HOSTNAME, ZONE
from shared.model.workloads import LabelSelectorSpec
from testing.builders import PodBuilder, expr, node, pod, selector
from testing.inprocess.batches import class_of
from testing.inprocess.pipeline import Pipeline, bound
from tests.rounds.support import BY_NAME, FRAMEWORKS, small_node, small_pod
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
    """Compares each answer that it gives with that of the worker, unless that one has seen another state meanwhile."""

    def __init__(self, run: "Run") -> None:
        super().__init__(run.cycle.frameworks)
        self.given = 0
        self.is_off = False
        self._run = run

    def answers(
        self, workers: Collection[str], wanted: Mapping[str, int], classes: Mapping[str, PodInfo], keys: Sequence[str]
    ) -> Known:
        if self.is_off:
            return Known({}, {})
        known = super().answers(workers, wanted, classes, keys)
        self._run.send_quiet_deltas()
        alone = sum(wanted.values()) == 1
        for worker, answers in known.answers.items():
            if self._run.workers[worker].seq == self.seq:
                self.given += len(answers)
                told = [
                    _told(answer, keys, alone=alone) for answer in self._run.asked(worker, wanted, known.merged, keys)
                ]
                given = [_told(answer, keys, alone=alone) for answer in answers]
                assert given == told, f"{given}\n{told}"
        return known


def _told(answer: ClassAnswer, keys: Sequence[str], *, alone: bool) -> ClassAnswer:
    """Without what only matters to later answers, and values of labels that were not asked for.

    `alone`: of the ladder of a class that has a topology, only the best placement is compared.
    """
    domains = {key: answer.ladder.domains[key] for key in keys}
    ladder = msgspec.structs.replace(answer.ladder, fills=[], domains=domains)
    told = msgspec.structs.replace(answer, lasts=False, followed=False, ranges={})
    if not alone or answer.topology is None:
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
        self, worker: str, wanted: Mapping[str, int], merged: Mapping[str, Summary], keys: Sequence[str]
    ) -> list[ClassAnswer]:
        core, cache = self.workers[worker], self.cycle.rounds.cache
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
                full = _named(PLAIN.request(cpu=8), f"full{len(run.placed)}-{run.snapshot.seq}")
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
        run.submit(pods)
        if roll.random() < 0.9:
            run.settle()
    run.settle()


@settings(deadline=None, max_examples=8)
@given(
    st.integers(0, 10**6),
    st.integers(1, 30),
    st.sampled_from([1, 2, 3]),
    st.sampled_from([1, 256]),
    st.sampled_from([BY_NAME, Ties(seed=7)]),
    st.sampled_from([FRAMEWORKS, PACKING]),
    st.booleans(),
    st.booleans(),
)
def test_known_answers_are_those_of_the_workers(
    seed: int,
    nodes: int,
    shards: int,
    round_size: int,
    ties: Ties,
    frameworks: Mapping[str, Framework],
    relabels: bool,
    roomy: bool,
) -> None:
    cluster = Cluster(seed, nodes, roomy=roomy)
    run = Run(shards, round_size, ties, frameworks, relabels=relabels)
    run.add_objects(REPLICA_SETS)
    run.add_nodes(cluster.nodes)
    run.settle()
    a_while(run, cluster, 25)


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


def wide(count: int = 40) -> Run:
    run = Run(2)
    run.add_nodes([small_node(f"n{i:02}") for i in range(count)])
    run.settle()
    return run


def test_a_class_that_comes_again_needs_no_ask_until_the_ladder_is_used_up() -> None:
    """New to the workers, it takes two asks of each; when it comes again, one more of each, with placements ahead."""
    run = wide(2 * AHEAD + 10)
    costs = one_by_one(run, [small_pod(f"p{i}", cpu="100m") for i in range(AHEAD + 2)])
    assert (costs[0], sum(costs[1:AHEAD])) == (4, 2)
    assert len({run.placed[f"default/p{i}"][0] for i in range(AHEAD + 2)}) == AHEAD + 2, "the emptiest node each time"


def test_decisions_of_which_no_worker_was_asked_are_sent_before_the_next_ask() -> None:
    pipeline = Pipeline(shards=2)
    pipeline.add_nodes([small_node(f"n{i:02}") for i in range(20)])
    pipeline.settle()
    for i in range(8):
        pipeline.submit([small_pod(f"p{i}", cpu="100m")])
        while f"default/p{i}" not in pipeline.outcomes:
            pipeline.step()
    seen = {core.seq for core in pipeline.workers.values()}
    assert max(seen) < pipeline.snapshot.seq, "no worker has seen the last decisions"
    pipeline.submit([small_pod("other", cpu="200m")])
    before = pipeline.now
    while "default/other" not in pipeline.outcomes:
        pipeline.step()
    assert pipeline.now == before, "and it has not waited for a deadline"
    assert {core.seq for core in pipeline.workers.values()} <= {pipeline.snapshot.seq, pipeline.snapshot.seq - 1}


def test_a_search_that_begins_before_a_decision_without_asks_does_not_hide_its_delta() -> None:
    """The search asks workers in the same moment, and first, so the deltas sent for it do not include that decision."""
    pipeline = Pipeline(shards=2)
    pipeline.add_nodes([small_node(f"n{i:02}") for i in range(20)])
    for i in range(3):
        pipeline.submit([small_pod(f"p{i}", cpu="100m")])
        pipeline.settle()
    pipeline.submit([small_pod("huge", cpu="64"), small_pod("with", cpu="100m")])
    while not pipeline.cycle.is_committing:
        pipeline.step()
    pipeline.submit([small_pod("after", cpu="100m")])
    while "default/after" not in pipeline.outcomes:
        pipeline.step()
    assert {core.seq for core in pipeline.workers.values()} == {pipeline.snapshot.seq - 1}, "its delta is quiet"
    pipeline.submit([small_pod("other", cpu="200m")])
    before = pipeline.now
    while "default/other" not in pipeline.outcomes:
        pipeline.step()
    assert pipeline.now == before, "and it has not waited for a deadline"


def test_what_is_summed_up_over_feasible_nodes_is_asked_for_each_time_even_if_it_is_not_scored() -> None:
    """It changes when a node is full."""
    run = Run(1, frameworks=UNSCORED_SPREADING)
    run.add_nodes(
        [node(f"n{i}").capacity(cpu=8, memory="8Gi", pods=2).label({HOSTNAME: f"n{i}"}).build() for i in "abc"]
    )
    run.settle()
    kind = KINDS["spread over nodes"]
    pods = [replace(kind, metadata=msgspec.structs.replace(kind.metadata, name=f"p{i}")).build() for i in range(6)]
    assert all(one_by_one(run, pods))
    assert run.known.given == 0


def test_a_class_that_comes_for_the_first_time_costs_an_ask_of_the_worker_whose_node_it_gets() -> None:
    run = wide()
    one_by_one(run, [small_pod(f"p{i}", cpu="100m") for i in range(4)])
    one_by_one(run, [small_pod("other", cpu="200m")])
    assert one_by_one(run, [small_pod("p9", cpu="100m")]) == [1]


@pytest.mark.parametrize("ties", [BY_NAME, Ties(seed=7)], ids=["all want the same nodes", "each wants others"])
def test_classes_in_turn_need_no_ask_either_once_each_came_twice(ties: Ties) -> None:
    """Whether or not the node of one is among those that the others would get next."""
    run = Run(2, ties=ties)
    run.add_nodes([small_node(f"n{i:03}") for i in range(200)])
    run.settle()
    costs = one_by_one(run, [small_pod(f"p{i}", cpu=f"{100 + i % 5}m") for i in range(60)])
    assert sum(costs[20:]) <= 8
    assert len({run.placed[f"default/p{i}"][0] for i in range(60)}) == 60, "the emptiest node each time"


@pytest.mark.parametrize("ties", [BY_NAME, Ties(seed=7)], ids=["all want the same nodes", "each wants others"])
def test_in_strict_mode_rounds_wait_for_commits_that_make_asks_needless(ties: Ties) -> None:
    """Pods wait, and are decided as if each came alone. The first round of each class overlaps."""
    nodes = [small_node(f"n{i:03}") for i in range(200)]
    pods = [small_pod(f"p{i}", cpu=f"{100 + i % 5}m") for i in range(60)]
    alone, together = Run(2, 1, ties), Run(2, 1, ties)
    for run in (alone, together):
        run.add_nodes(nodes)
        run.settle()
    costs = one_by_one(alone, pods)
    together.submit(pods)
    together.settle()
    assert together.placed == alone.placed
    assert together.asks <= sum(costs) + 4 * 5


def test_in_strict_mode_rounds_overlap_with_commits_where_each_needs_an_ask() -> None:
    """One pod at most is decided between an ask and its answers, and none where its class has a topology."""
    run = Run(2, 1)
    run.add_nodes([small_node(f"n{i:02}") for i in range(20)])
    run.settle()
    kind = KINDS["rather with large"]
    run.submit([replace(kind, metadata=msgspec.structs.replace(kind.metadata, name=f"p{i}")).build() for i in range(6)])
    overlapped = 0
    while len(run.outcomes) < 6:
        run.step()
        overlapped += run.cycle.is_committing and run.cycle.rounds.current is not None
    assert overlapped


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("round_size", [1, 256])
def test_scores_by_a_range_that_has_moved_since_tell_nothing(together: bool, round_size: int) -> None:
    """A class likes nodes that were full when it was last evaluated. What another class's placements mean for it was
    judged before it was asked again, by the range without them.
    """
    liking = pod("liking").request(cpu="800m", memory="1Mi").prefer_node(50, expr("group", "In", "a"))
    plain = pod("plain").request(cpu="400m", memory="1Mi")
    run = Run(1, round_size)
    sizes = {
        "m": (9, "b", 8),
        "y": (8, "a", 8),
        "z": (8, "a", 8),
        "w": (6, "a", 6),
        "k1": (8, "b", 0),
        "k2": (8, "b", 0),
    }
    for name, (cpu, group, taken) in sizes.items():
        run.add_nodes([node(name).capacity(cpu=cpu, memory="64Gi", pods=110).label(group=group).build()])
        if taken:
            run.observe(snapshot.PodSeen(bound(pod(f"on-{name}").request(cpu=taken).build(), name)))
    run.settle()

    names = (f"p{i}" for i in range(20))

    def come(*kinds: PodBuilder) -> None:
        run.submit([_named(kind, next(names)) for kind in kinds])
        run.settle()

    for kind in (liking, liking, plain, plain):
        come(kind)
    for name in "myzw":
        run.observe(snapshot.PodDeleted(f"default/on-{name}"))
    run.settle()
    for kinds in [(plain, liking)] if together else [(plain,), (liking,)]:
        come(*kinds)
    before = run.known.given
    for kind in (plain, liking, liking):
        come(kind)
    assert run.known.given > before, "of these, Checked compares each with what the worker would say"


def _named(of: PodBuilder, name: str) -> Pod:
    return replace(of, metadata=msgspec.structs.replace(of.metadata, name=name)).build()


def replicas(*of: str) -> list[Pod]:
    """A pod of each of these ReplicaSets."""
    kinds = [KINDS[f"replica of {name}"] for name in of]
    metadata = (msgspec.structs.replace(kind.metadata, name=f"r{i:03}") for i, kind in enumerate(kinds))
    return [replace(kind, metadata=each).build() for kind, each in zip(kinds, metadata, strict=True)]


def zoned(run: Run, count: int = 60) -> Run:
    run.add_objects(REPLICA_SETS)
    run.add_nodes(
        [
            node(f"n{i:03}")
            .capacity(cpu=4 + i % 2 * 4, memory="8Gi", pods=9)
            .label({HOSTNAME: f"n{i:03}", ZONE: "xyz"[i % 3]})
            .build()
            for i in range(count)
        ]
    )
    run.settle()
    return run


@pytest.mark.parametrize("ties", [BY_NAME, Ties(seed=7)], ids=["all want the same nodes", "each wants others"])
@pytest.mark.parametrize("of", ["a" * 30, "ab" * 15], ids=["one ReplicaSet", "two in turn"])
def test_pods_of_replica_sets_are_rarely_asked_about_and_go_where_they_would_go_if_all_were(
    ties: Ties, of: str
) -> None:
    known, asked = zoned(Run(2, 1, ties, relabels=False)), zoned(Run(2, 1, ties, relabels=False))
    asked.known.is_off = True
    costs, of_all = one_by_one(known, replicas(*of)), one_by_one(asked, replicas(*of))
    assert known.placed == asked.placed
    assert 2 * sum(costs) <= sum(of_all)


def test_a_few_pods_of_one_replica_set_at_a_time_need_no_ask_either() -> None:
    run = zoned(Run(2, relabels=False))
    pods = replicas(*"a" * 32)
    one_by_one(run, pods[:4])
    before = run.asks
    for start in range(4, 32, 4):
        run.submit(pods[start : start + 4])
        run.settle()
    assert run.asks - before <= 2


def test_where_labels_of_bound_pods_change_spread_pods_are_asked_about() -> None:
    """A constraint might count them by the new label."""
    run = zoned(Run(2))
    assert all(one_by_one(run, replicas(*"aaaaaa")))


def test_a_pod_of_another_class_that_is_counted_ends_what_is_known() -> None:
    run = zoned(Run(2, relabels=False))
    one_by_one(run, replicas(*"bbbb"))
    one_by_one(run, [replace(KINDS["large replica of b"]).build()])
    last = replace(KINDS["replica of b"], metadata=msgspec.structs.replace(KINDS["replica of b"].metadata, name="last"))
    assert one_by_one(run, [last.build()])[0] >= 2


def test_a_plugin_that_fails_for_another_class_does_not_fail_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ArithmeticError("on purpose")

    monkeypatch.setattr(Lasting, "totals_beside", fail)
    run = wide()
    costs = one_by_one(run, [small_pod(f"p{i}", cpu=f"{100 + i % 2}m") for i in range(8)])
    assert all(costs[4:]), "what is not known is asked about"
    assert any(str(cause) == "on purpose" for core in run.workers.values() for _, cause in core.failures.unexpected())


def test_classes_that_fill_the_node_that_the_others_want_next_are_asked_about_each_time() -> None:
    run = Run(2, frameworks=PACKING)
    run.add_nodes([small_node(f"n{i:02}") for i in range(20)])
    run.settle()
    costs = one_by_one(run, [small_pod(f"p{i}", cpu=f"{100 + i % 3}m") for i in range(12)])
    assert all(costs)
    assert len({run.placed[f"default/p{i}"][0] for i in range(12)}) <= 2


def test_a_class_that_came_once_is_not_asked_about_placements_ahead() -> None:
    run = wide()
    asked: list[int] = []
    send = run._carry_out_cycle

    def noting(effects: Iterable[Effect]) -> None:
        told = list(effects)
        messages = [effect.message for effect in told if isinstance(effect, Ask)]
        asked.extend(each.ahead for message in messages if isinstance(message, Propose) for each in message.classes)
        send(told)

    run._carry_out_cycle = noting  # type: ignore[method-assign]
    one_by_one(run, [small_pod(f"p{i}", cpu=f"{100 + i}m") for i in range(12)])
    assert set(asked) == {0}
    one_by_one(run, [small_pod("p", cpu="105m")])
    assert AHEAD in asked


def test_what_the_snapshot_tells_of_other_changes_ends_what_is_known() -> None:
    run = wide()
    one_by_one(run, [small_pod(f"p{i}", cpu="100m") for i in range(4)])
    run.observe(snapshot.NodeSeen(small_node("new")))
    run.settle()
    assert one_by_one(run, [small_pod("p9", cpu="100m")])[0] >= 2


def test_pods_that_must_see_a_later_state_are_asked_about() -> None:
    run = wide()
    one_by_one(run, [small_pod(f"p{i}", cpu="100m") for i in range(4)])
    before = run.asks
    run.submit([small_pod("p9", cpu="100m")], seq=run.snapshot.seq + 1)
    assert run.asks == before + 2


def test_after_shards_were_assigned_again_nothing_is_known() -> None:
    run = wide()
    one_by_one(run, [small_pod(f"p{i}", cpu="100m") for i in range(4)])
    run.assign_again()
    assert one_by_one(run, [small_pod("p9", cpu="100m")])[0] >= 2
