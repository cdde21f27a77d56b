"""Forged answers of a worker do no lasting harm."""

from collections.abc import Sequence

import msgspec
import pytest

from flotilla.results import Topology
from services.cycle.answer_checks import MAX_AHEAD, MAX_HEARTBEATS
from services.cycle.commits import MAX_CONFLICTS
from services.cycle.core import CycleCore
from services.cycle.events import (
    Ask,
    Decided,
    Effect,
    Failed,
    SendCommit,
    Tick,
    Unschedulable,
    WorkerFault,
    Workers,
)
from services.cycle.round.known_answers import MAX_CLASSES
from services.cycle.round.runner import ASK_DEADLINE
from shared.cluster.nodetable import shard_of
from shared.messages.evaluation import Summary
from shared.messages.preemption import Candidate, Candidates, Preempt, ShardFindings, Victim
from shared.messages.rounds import ClassAnswer, KeptOut, Ladder, NominatedPod, OwnNodes, Proposals, Propose, ScoreGroup
from shared.messages.state import EPOCH_SHIFT, Committed, Conflict, Heartbeat
from shared.model.objects import Pod
from testing.builders import pod
from testing.inprocess.batches import batch_of, nominated
from tests.rounds.script import NO_IMAGES, asked, class_of, offer, written
from tests.rounds.support import BY_NAME, FRAMEWORKS, QUIET, small_pod

TERM = 1 << EPOCH_SHIFT
NOW = TERM + 100
FAR = 1 << 62
P, Q = small_pod("p"), small_pod("q", cpu="2")
LIAR, HONEST = "w0", "w1"


def node_of(worker: str) -> str:
    """A node in the shard of this worker."""
    shard = {LIAR: 0, HONEST: 1}[worker]
    return next(name for name in "abcdefgh" if shard_of(name, 2) == shard)


class World:
    """A cycle with two workers, of which the first answers as the test wants."""

    def __init__(self, *, preempts: bool = False) -> None:
        self.core = CycleCore(1, FRAMEWORKS if preempts else QUIET, ties=BY_NAME)
        self.now = 0.0
        self.faults: list[tuple[str, str]] = []
        incarnations = {LIAR: "0000", HONEST: "1111"}
        self.handle(Workers({LIAR: frozenset({0}), HONEST: frozenset({1})}, 2, incarnations))
        self.handle(Heartbeat(1, NOW))

    def handle(self, event: object) -> list[Effect]:
        effects = self.core.handle(event, self.now)  # type: ignore[arg-type]
        self.core.validate()
        self.faults += [(each.worker, each.kind) for each in effects if isinstance(each, WorkerFault)]
        return effects

    def submit(self, *pods: Pod) -> dict[str, Propose]:
        return asked(self.handle(batch_of(pods, NOW)))

    def answer(self, propose: Propose, worker: str, *answers: ClassAnswer, **told: object) -> list[Effect]:
        shard, incarnation = {LIAR: (0, "0000"), HONEST: (1, "1111")}[worker]
        made = Proposals(
            worker, 1, propose.round, propose.ask, max(NOW, propose.min_seq), [shard], list(answers), incarnation
        )
        return self.handle(msgspec.structs.replace(made, **told))

    def both(self, asks: dict[str, Propose], of: Pod, **told: object) -> list[Effect]:
        """Both offer a node of theirs, as often as they are asked; `told` by the liar."""
        effects: list[Effect] = []
        while asks and not any(isinstance(each, SendCommit) for each in effects):
            for worker in (LIAR, HONEST):
                if worker in asks:
                    offered = offer(class_of(of), (node_of(worker), 9 if worker == LIAR else 5))
                    effects = self.answer(asks[worker], worker, offered, **(told if worker == LIAR else {}))
            asks = asked(effects)
        return effects

    def decided(self, of: Pod) -> str:
        """Both are honest from now on: where the pod goes."""
        commit = written(self.both(self.submit(of), of))
        effects = self.handle(Committed(1, commit.number, NOW + 1, []))
        return next(each.node for each in effects if isinstance(each, Decided))


# What an answer claims to have seen


def test_an_answer_from_the_far_future_is_refused() -> None:
    """Seen: answers that claimed to have seen state 2^62 stopped all scheduling for good."""
    world = World()
    asks = world.submit(P)
    offered = offer(class_of(P), (node_of(LIAR), 9))
    for _ in range(MAX_HEARTBEATS):
        assert world.answer(asks[LIAR], LIAR, offered, seq=FAR) == [], "it may be early"
        world.handle(Heartbeat(1, NOW))
    world.now += ASK_DEADLINE
    again = asked(world.handle(Tick()))
    assert asked(world.answer(again[LIAR], LIAR, offered, seq=FAR)).keys() == {LIAR}
    assert world.faults == [(LIAR, "sequence")]
    world.handle(Workers({HONEST: frozenset({0, 1})}, 2, {HONEST: "1111"}))
    assert world.core.pods_held == 1
    world.handle(Heartbeat(1, NOW + 5))
    asks = asked(world.handle(Workers({LIAR: frozenset({0}), HONEST: frozenset({1})}, 2)))
    commit = written(world.both(asks, P))
    assert [type(each) for each in world.handle(Committed(1, commit.number, NOW + 6, []))] == [Decided]
    assert world.decided(Q) == node_of(LIAR)


@pytest.mark.parametrize("claim", [FAR, 16 << EPOCH_SHIFT, NOW + 5])
def test_a_sequence_number_that_only_the_queue_names_is_waited_for_until_heartbeats_refute_it(claim: int) -> None:
    world = World()
    asks = asked(world.handle(batch_of([P], claim)))
    assert {propose.min_seq for propose in asks.values()} == {claim}
    world.handle(Heartbeat(1, NOW))
    world.now += ASK_DEADLINE
    assert {propose.min_seq for propose in asked(world.handle(Tick())).values()} == {claim}
    world.handle(Heartbeat(1, NOW + 1))
    world.now += ASK_DEADLINE
    asks = asked(world.handle(Tick()))
    assert {propose.min_seq for propose in asks.values()} == {NOW + 1}
    commit = written(world.both(asks, P))
    assert [type(each) for each in world.handle(Committed(1, commit.number, NOW + 2, []))] == [Decided]
    assert world.faults == []


def test_a_search_does_not_wait_for_a_refuted_sequence_number() -> None:
    world = World(preempts=True)
    world.handle(batch_of([], FAR))
    assert search_of(world, P).min_seq == FAR
    for beat in (1, 2):
        world.handle(Heartbeat(1, NOW + beat))
    world.now += ASK_DEADLINE
    asks = [each.message for each in world.handle(Tick()) if isinstance(each, Ask)]
    assert {each.min_seq for each in asks if isinstance(each, Preempt)} == {NOW + 2}


def test_an_answer_of_a_new_snapshot_term_is_accepted_once_the_term_is_known() -> None:
    world = World()
    asks = world.submit(P)
    offered = offer(class_of(P), (node_of(LIAR), 9))
    later = (2 << EPOCH_SHIFT) + 3
    assert world.answer(asks[LIAR], LIAR, offered, seq=later) == []
    world.handle(Heartbeat(2, later))
    world.now += ASK_DEADLINE
    again = asked(world.handle(Tick()))
    world.answer(again[LIAR], LIAR, offered, seq=later)
    assert world.faults == []


def test_a_claim_beyond_the_newest_state_is_found_by_the_answer_to_the_commit() -> None:
    world = World()
    commit = written(world.both(world.submit(P), P, seq=NOW + MAX_AHEAD // 2))
    effects = world.handle(Committed(1, commit.number, NOW + 1, []))
    assert world.faults == [(LIAR, "sequence")]
    assert any(isinstance(each, Decided) for each in effects)
    asks = world.submit(Q)
    assert {propose.min_seq for propose in asks.values()} == {NOW + 1}, "no worker waits for an invented number"


def test_an_answer_by_an_older_state_than_was_asked_for_is_a_fault() -> None:
    world = World()
    asks = world.submit(P)
    effects = world.answer(asks[LIAR], LIAR, offer(class_of(P), (node_of(LIAR), 9)), seq=1)
    assert world.faults == [(LIAR, "sequence")]
    assert asked(effects).keys() == {LIAR}


# Whose node


def test_a_node_of_another_worker_is_not_proposed() -> None:
    world = World()
    asks = world.submit(P)
    effects = world.answer(asks[LIAR], LIAR, offer(class_of(P), (node_of(HONEST), 100)))
    assert world.faults == [(LIAR, "shard")]
    assert asked(effects).keys() == {LIAR}, "and it is asked again"


def test_a_decision_names_the_worker_whose_node_it_is() -> None:
    world = World()
    (decision,) = written(world.both(world.submit(P), P)).decisions
    assert (decision.node, decision.worker) == (node_of(LIAR), LIAR)


@pytest.mark.parametrize("incarnation", ["", "0001"])
def test_an_answer_under_another_incarnation_is_ignored(incarnation: str) -> None:
    """The sender under another worker's name is unknown, so no worker is blamed."""
    world = World()
    asks = world.submit(P)
    offered = offer(class_of(P), (node_of(LIAR), 100))
    assert world.answer(asks[LIAR], LIAR, offered, incarnation=incarnation) == []
    assert [str(each) for each in world.core.refused] == ["another process answers under the name w0"]
    assert world.faults == []
    assert world.decided(Q) == node_of(LIAR) if world.answer(asks[LIAR], LIAR, offered) else True


def test_a_worker_of_the_previous_release_need_not_name_its_incarnation() -> None:
    world = World()
    world.handle(Workers({LIAR: frozenset({0}), HONEST: frozenset({1})}, 2))
    asks = world.submit(P)
    world.answer(asks[LIAR], LIAR, offer(class_of(P), (node_of(LIAR), 9)), incarnation="")
    assert not world.core.refused


# What cannot be read


def crooked(**changes: object) -> ClassAnswer:
    answer = offer(class_of(P), (node_of(LIAR), 9))
    return msgspec.structs.replace(answer, ladder=msgspec.structs.replace(answer.ladder, **changes))


@pytest.mark.parametrize(
    "changes",
    [{"scores": []}, {"ties": [1, 2]}, {"volumes": [None, None]}, {"domains": {"zone": []}}, {"strata": ("zone",)}],
)
def test_a_malformed_ladder_is_refused(changes: dict[str, object]) -> None:
    world = World()
    asks = world.submit(P)
    world.answer(asks[LIAR], LIAR, crooked(**changes))
    assert world.faults == [(LIAR, "answer")]


@pytest.mark.parametrize("beside", [{"other": [1, 2]}, {f"c{i}": [1] for i in range(MAX_CLASSES + 1)}])
def test_scores_beside_are_one_for_each_placement_and_of_no_more_classes_than_are_asked_about(
    beside: dict[str, list[int]],
) -> None:
    world = World()
    asks = world.submit(P)
    world.answer(asks[LIAR], LIAR, msgspec.structs.replace(crooked(), beside=beside))
    assert world.faults == [(LIAR, "answer")]


GROUP = ScoreGroup(["z"], 0, 1, [node_of(LIAR)], [1], [0], [1], [0])


def listing(*groups: ScoreGroup, beside: int = 1) -> ClassAnswer:
    return msgspec.structs.replace(crooked(), groups=list(groups), beside={"other": [1] * beside})


@pytest.mark.parametrize(
    "answer",
    [
        listing(GROUP, GROUP, beside=2),
        listing(GROUP, msgspec.structs.replace(GROUP, pods=1), beside=2),
        listing(msgspec.structs.replace(GROUP, nodes=[])),
        listing(msgspec.structs.replace(GROUP, count=0)),
        listing(msgspec.structs.replace(GROUP, next_ties=[])),
        listing(GROUP, beside=2),
    ],
    ids=["a group twice", "a node twice", "no node", "more nodes than there are", "a short column", "others' scores"],
)
def test_groups_that_contradict_each_other_are_refused(answer: ClassAnswer) -> None:
    world = World()
    asks = world.submit(P)
    world.answer(asks[LIAR], LIAR, answer)
    assert world.faults == [(LIAR, "answer")]


def test_groups_have_nodes_of_the_workers_shards_only() -> None:
    world = World()
    asks = world.submit(P)
    foreign = msgspec.structs.replace(GROUP, nodes=[node_of(HONEST)])
    world.answer(asks[LIAR], LIAR, listing(foreign))
    assert world.faults == [(LIAR, "shard")]


@pytest.mark.parametrize("nodes", [[], ["n0"]])
def test_a_ladder_that_is_split_by_a_label_has_its_values_even_if_it_is_empty(nodes: list[str]) -> None:
    checks = World().core._checks
    length = len(nodes)
    split = Ladder(nodes, [1] * length, [1] * length, domains={}, strata=("zone",))
    answer = ClassAnswer(class_of(P), ladder=split, topology=Topology(("zone",), ("zone",)))
    proposals = Proposals(LIAR, 1, 1, 1, NOW, [0], [answer])
    fault = checks.proposals(proposals, NOW, [class_of(P)], ["zone"])
    assert fault is not None
    assert fault.reason == "its ladder has no values of labels that it is split by"


def test_a_summary_that_cannot_be_merged_does_not_break_the_cycle() -> None:
    world = World()
    asks = world.submit(P)
    nonsense = ClassAnswer(class_of(P), summary=Summary(nodes=1, plugins={"ImageLocality": 7}))
    effects: list[Effect] = []
    for worker, told in ((HONEST, offer(class_of(P), (node_of(HONEST), 5))), (LIAR, nonsense)):
        effects = world.answer(asks[worker], worker, told)
    assert world.faults == [(LIAR, "answer")]
    assert asked(effects).keys() == {LIAR}


def test_summaries_that_merge_only_with_themselves_fail_the_pod_and_not_the_cycle() -> None:
    world = World()
    asks = world.submit(P)
    effects: list[Effect] = []
    for worker, images in ((HONEST, 1), (LIAR, "many")):
        counts = Summary(nodes=1, feasible=1, plugins={"ImageLocality": {"nodes": 1, "images": {"i": images}}})
        effects = world.answer(asks[worker], worker, ClassAnswer(class_of(P), summary=counts))
    (failed,) = [each for each in effects if isinstance(each, Failed)]
    assert failed.uid == P.uid
    assert "merging the summaries" in str(failed)
    assert world.faults == []


@pytest.mark.parametrize("counts", [{"nodes": FAR}, {"nodes": 2, "feasible": FAR}, {"nodes": -1}])
def test_an_absurd_count_of_nodes_is_a_fault_and_reaches_no_other_worker(counts: dict[str, int]) -> None:
    """Seed 20261123104 of the simulation: the merged count was beyond what any worker reads, so none answered again."""
    world = World()
    asks = world.submit(P)
    absurd = msgspec.structs.replace(
        offer(class_of(P), (node_of(LIAR), 9)), summary=msgspec.structs.replace(Summary(), **counts)
    )
    world.answer(asks[HONEST], HONEST, offer(class_of(P), (node_of(HONEST), 5)))
    effects = world.answer(asks[LIAR], LIAR, absurd)
    assert world.faults == [(LIAR, "answer")]
    assert asked(effects).keys() == {LIAR}


def test_an_absurd_count_of_nodes_to_preempt_on_is_a_fault() -> None:
    world = World(preempts=True)
    absurd = ShardFindings(class_of(P), summary=Summary(nodes=1), potential=FAR)
    checks = world.core._checks
    fault = checks.candidates(Candidates(LIAR, 1, 1, 1, NOW, [0], [absurd], "0000"), NOW, [class_of(P)])
    assert fault is not None and fault.kind == "answer"


# Commits that were refused


def refuse(world: World, effects: Sequence[Effect], fault: str) -> list[Effect]:
    commit = written(effects)
    conflicts = [Conflict(each.uid, "no room", fault=fault) for each in commit.decisions]  # type: ignore[arg-type]
    return world.handle(Committed(1, commit.number, NOW + 1, conflicts))


def test_what_the_snapshot_refuses_is_a_fault_of_the_worker_and_the_pod_is_decided_again() -> None:
    world = World()
    effects = refuse(world, world.both(world.submit(P), P), "capacity")
    assert world.faults == [(LIAR, "capacity")]
    assert asked(effects).keys() == {LIAR, HONEST}


def test_after_too_many_conflicts_a_pod_backs_off() -> None:
    world = World()
    asks = world.submit(P)
    effects: list[Effect] = []
    for _ in range(MAX_CONFLICTS):
        assert not any(isinstance(each, Failed) for each in effects)
        effects = refuse(world, world.both(asks, P), "")
        asks = asked(effects)
    assert [each.uid for each in effects if isinstance(each, Failed)] == [P.uid]
    assert world.core.pods_held == 0
    assert world.decided(Q) == node_of(LIAR)


# Victims


def test_a_candidate_on_a_node_of_another_worker_is_refused() -> None:
    world = World(preempts=True)
    preempt = search_of(world, pod("high").priority(1).request(cpu="1").build())
    effects = world.handle(candidates(preempt, LIAR, node_of(HONEST)))
    assert world.faults == [(LIAR, "shard")]
    assert [each.worker for each in effects if isinstance(each, Ask)] == [LIAR]


def test_a_pod_that_never_preempts_gets_no_victims_from_a_forged_answer() -> None:
    world = World(preempts=True)
    preempt = search_of(world, pod("high").priority(1).never_preempting().request(cpu="1").build())
    world.handle(candidates(preempt, LIAR, node_of(LIAR)))
    effects = world.handle(candidates(preempt, HONEST, ""))
    (told,) = [each for each in effects if isinstance(each, Unschedulable)]
    assert "preemptionPolicy=Never" in told.unfit.message
    assert not any(isinstance(each, SendCommit) for each in effects)


def test_candidates_with_a_summary_that_cannot_be_merged_are_refused() -> None:
    """Seed 1000028 of the simulation: the cycle's term ended with a KeyError."""
    world = World(preempts=True)
    preempt = search_of(world, pod("high").priority(1).request(cpu="1").build())
    forged = candidates(preempt, LIAR, node_of(LIAR))
    (findings,) = forged.findings
    nonsense = msgspec.structs.replace(findings, summary=Summary(nodes=1, plugins={"ImageLocality": {"nodes": 1}}))
    world.handle(candidates(preempt, HONEST, ""))
    effects = world.handle(msgspec.structs.replace(forged, findings=[nonsense]))
    assert world.faults == [(LIAR, "answer")]
    assert [each.worker for each in effects if isinstance(each, Ask)] == [LIAR]


def search_of(world: World, of: Pod) -> Preempt:
    """No node is feasible: the search for victims that begins then."""
    asks = world.submit(of)
    effects: list[Effect] = []
    while asks:
        for worker in asks:
            own = Summary(nodes=1, feasible=0, plugins=NO_IMAGES)
            answers = [ClassAnswer(ask.class_id, summary=own) for ask in asks[worker].classes]
            effects = world.answer(asks[worker], worker, *answers)
        asks = asked(effects)
    return next(each.message for each in effects if isinstance(each, Ask) and isinstance(each.message, Preempt))


def candidates(preempt: Preempt, worker: str, node: str) -> Candidates:
    shard, incarnation = {LIAR: (0, "0000"), HONEST: (1, "1111")}[worker]
    found = [Candidate(node, [Victim("v", "default/v")])] if node else []
    findings = [
        ShardFindings(ask.class_id, summary=Summary(nodes=1, plugins=NO_IMAGES), potential=1, candidates=found)
        for ask in preempt.classes
    ]
    return Candidates(worker, 1, preempt.search, preempt.ask, NOW, [shard], findings, incarnation)


# Nominated pods


@pytest.mark.parametrize(
    "wrong",
    [
        OwnNodes([P.uid], Ladder([node_of(LIAR)], [0], [0])),
        OwnNodes(["other"], Ladder([""], [0], [0])),
        OwnNodes([], Ladder([node_of(LIAR)], [0], [0])),
        OwnNodes(unfit=[KeptOut("other")]),
    ],
)
def test_an_answer_about_other_nominated_pods_or_nodes_is_a_fault(wrong: OwnNodes) -> None:
    world = World()
    asks = world.submit(nominated(P, node_of(HONEST)))
    offered = offer(class_of(P), (node_of(LIAR), 9))
    again = asked(world.answer(asks[LIAR], LIAR, msgspec.structs.replace(offered, own_nodes=wrong)))
    assert again.keys() == {LIAR}
    assert world.faults == [(LIAR, "answer")]


def of_nominated(world: World, here: OwnNodes | None, there: OwnNodes | None) -> list[Effect]:
    """The liar offers a better node, as often as both are asked; `here`, `there`: what they say of the pod's own."""
    effects: list[Effect] = []
    asks = world.submit(nominated(P, node_of(HONEST)))
    assert asks[LIAR].classes[0].nominated == [NominatedPod(P.uid, node_of(HONEST))]
    while asks and all(each.classes[0].class_id == class_of(P) for each in asks.values()):
        better = offer(class_of(P), (node_of(LIAR), 9))
        world.answer(asks[LIAR], LIAR, msgspec.structs.replace(better, own_nodes=here))
        effects = world.answer(asks[HONEST], HONEST, msgspec.structs.replace(offer(class_of(P)), own_nodes=there))
        asks = asked(effects)
    return effects


def test_a_nominated_pod_goes_to_its_node_whatever_others_offer() -> None:
    own = OwnNodes([P.uid], Ladder([node_of(HONEST)], [0], [0]))
    commit = written(of_nominated(World(), OwnNodes(), own))
    assert [each.assignment.node for each in commit.decisions] == [node_of(HONEST)]


def test_a_nominated_pod_that_may_not_go_to_its_node_goes_where_its_class_goes() -> None:
    commit = written(of_nominated(World(), OwnNodes(), OwnNodes()))
    assert [each.assignment.node for each in commit.decisions] == [node_of(LIAR)]


def test_a_nominated_pod_is_a_class_of_its_own_for_workers_of_the_previous_release() -> None:
    asks = asked(of_nominated(World(), None, None))
    (ask,) = asks[HONEST].classes
    assert ask.pod == nominated(P, node_of(HONEST))
    assert ask.nominated == []
