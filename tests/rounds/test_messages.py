"""Every message arrives as it was sent."""

from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flotilla.results import Code, Status
from shared.cluster.volumes import VolumeDecision
from shared.messages import inspection, recording, status
from shared.messages.binding import (
    AttemptFound,
    BinderBeat,
    BindingOrders,
    BindingOutcome,
    BindingOutcomes,
    Displaced,
    Evict,
    Evicted,
    EvictedPod,
    FindAttempt,
    HeldAttempt,
    IsNominated,
    IsPlaced,
    ListPermits,
    Nominated,
    Notice,
    Notices,
    PermitAnswer,
    PermitPending,
    Permits,
    PlacedNow,
    Preemption,
    Recall,
    Recalled,
    Step,
    Withdraw,
)
from shared.messages.codec import Message, copy, decode, encode
from shared.messages.evaluation import Rejections, Summary, Ties
from shared.messages.explaining import (
    Blocked,
    Cause,
    ExplainNodes,
    ExplainPod,
    NamedPod,
    NodeEdit,
    NodeFindings,
    NodeModel,
    NodeVerdict,
    PluginScore,
    PodExplained,
    Rejected,
    Remembered,
    ScoredNode,
    ShardExplained,
    Shortage,
    Supposed,
)
from shared.messages.identity import NameTaken, Owner, WhoOwns
from shared.messages.inspection import (
    AssumedPod,
    CacheCompared,
    CachedNode,
    CachedPod,
    CacheListed,
    CompareCache,
    DescribedGroup,
    DescribedPod,
    Difference,
    EvictionsListed,
    FindPod,
    GroupMember,
    GroupsListed,
    LedgerListed,
    ListCache,
    ListEvictions,
    ListGroups,
    ListLedger,
    ListQueue,
    MeasureNodes,
    Move,
    NodesMeasured,
    PodFound,
    QueueListed,
    RecordedPreemption,
    WaitingPod,
)
from shared.messages.preemption import Candidate, Candidates, Preempt, PreemptAsk, ShardFindings, Victim
from shared.messages.queue import (
    Absorbed,
    Activate,
    Assumed,
    Batch,
    Forgotten,
    ForgottenPod,
    Inspect,
    Outcome,
    Outcomes,
    QueueContents,
    QueuedPod,
    Received,
    Take,
    Verdict,
)
from shared.messages.rounds import ClassAnswer, ClassAsk, Ladder, Proposals, Propose
from shared.messages.state import (
    Assignment,
    BindingOrder,
    Commit,
    Committed,
    Conflict,
    Decision,
    Delta,
    Heartbeat,
    NodeRemoved,
    NodeState,
    NodeUpserted,
    Nominate,
    NominationGone,
    ObjectRemoved,
    ObjectUpserted,
    Outdated,
    PodGone,
    PodNominated,
    PodOnNode,
    PodPlaced,
    SharedHostnames,
    State,
)
from shared.messages.watch import (
    Kind,
    ListingBegins,
    ListingEnds,
    NodeChange,
    ObjectChange,
    PodChange,
    Relist,
    Unreadable,
    WatchBeat,
    Watched,
    WatchSeen,
)
from shared.messages.workers import Assign, WorkerBeat
from shared.model.load import PodLoad, load_of
from shared.model.objects import ObjectKind, encode_msgpack
from shared.model.resources import HostPort
from tests.messages.examples import example
from tests.rounds.world import World
from tests.samples import an_object

TEXT, NUMBERS, COUNTS = st.text(max_size=8), st.integers(-(2**62), 2**62), st.integers(0, 2**40)
WORLDS = st.integers(0, 10**6).map(World)
NODES, PODS = WORLDS.map(lambda world: world.a_node("n")), WORLDS.map(lambda world: world.pods(1)[0])
LOADS = st.one_of(
    PODS.map(load_of),
    st.builds(PodLoad, TEXT, st.dictionaries(TEXT, TEXT), st.dictionaries(TEXT, COUNTS), COUNTS, COUNTS),
    st.builds(PodLoad, TEXT, ports=st.tuples(st.builds(HostPort, TEXT, TEXT, COUNTS)), terminating=st.booleans()),
)
TIES = st.builds(Ties, st.sampled_from(["random", "name"]), COUNTS)
SUMMARIES = st.builds(
    Summary,
    COUNTS,
    COUNTS,
    st.dictionaries(TEXT, st.dictionaries(TEXT, NUMBERS, max_size=2), max_size=2),
    st.dictionaries(TEXT, st.tuples(NUMBERS, NUMBERS), max_size=3),
)
STATUSES = st.builds(Status, st.sampled_from(Code), st.tuples(TEXT, TEXT), TEXT)
ASKS = st.builds(ClassAsk, TEXT, TEXT, COUNTS, st.none() | PODS, st.none() | SUMMARIES)
LADDERS = st.builds(
    Ladder, st.lists(TEXT, max_size=3), st.lists(COUNTS, max_size=3), st.lists(NUMBERS, max_size=3), st.booleans()
)
ANSWERS = st.builds(
    ClassAnswer,
    TEXT,
    st.booleans(),
    st.none() | STATUSES,
    st.none() | STATUSES,
    st.none() | STATUSES,
    SUMMARIES,
    LADDERS,
    st.lists(st.builds(Rejections, STATUSES, COUNTS), max_size=2),
    st.tuples(TEXT),
)
TIMES = st.floats(0, 1e9, allow_nan=False)
KINDS = st.sampled_from(ObjectKind)
OBJECTS = KINDS.map(an_object)
NOMINATED = st.builds(PodNominated, TEXT, TEXT, COUNTS, TEXT)
CHANGES = st.one_of(
    NODES.map(NodeUpserted),
    st.builds(NodeRemoved, TEXT),
    st.builds(PodPlaced, TEXT, TEXT, COUNTS, TEXT, st.none() | TIMES),
    st.builds(PodGone, TEXT),
    NOMINATED,
    st.builds(NominationGone, TEXT),
    st.builds(SharedHostnames, st.lists(TEXT, max_size=2)),
    OBJECTS.map(ObjectUpserted),
    st.builds(ObjectRemoved, KINDS, TEXT),
)
VOLUMES = st.builds(
    VolumeDecision,
    st.lists(st.tuples(TEXT, TEXT), max_size=2),
    st.lists(TEXT, max_size=2),
    st.dictionaries(TEXT, TEXT, max_size=2),
)
ASSIGNMENTS = st.builds(Assignment, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, st.none() | PODS, st.none() | VOLUMES)
ORDERS = st.builds(BindingOrder, ASSIGNMENTS, COUNTS, COUNTS, TIMES)
BODIES = PODS.map(lambda pod: msgspec.Raw(encode_msgpack(pod)))
WATCHED = st.one_of(
    st.builds(PodChange, TEXT, TEXT, TEXT, TEXT, TEXT, st.booleans(), st.booleans(), BODIES, TIMES, TEXT),
    st.builds(PodChange, TEXT, TEXT, TEXT, gone=st.just(True)),
    st.builds(NodeChange, TEXT, st.booleans(), NODES.map(lambda node: msgspec.Raw(encode_msgpack(node)))),
    st.builds(NodeChange, TEXT, gone=st.just(True)),
    st.builds(ObjectChange, KINDS, TEXT, st.booleans(), OBJECTS.map(lambda obj: msgspec.Raw(encode_msgpack(obj)))),
    st.builds(ObjectChange, KINDS, TEXT, gone=st.just(True)),
    st.builds(ListingBegins, st.sampled_from(Kind)),
    st.builds(ListingEnds, st.sampled_from(Kind)),
    st.builds(Unreadable, st.sampled_from(Kind), TEXT, TEXT, TEXT, TEXT, TEXT, TEXT),
)
VICTIMS = st.builds(Victim, TEXT, TEXT, COUNTS)
EVICTED_PODS = st.tuples(st.builds(EvictedPod, TEXT, TEXT, TEXT, TEXT, COUNTS, st.booleans()))
PREEMPTIONS = st.builds(Preemption, TEXT, TEXT, TEXT, EVICTED_PODS)
DISPLACED = st.builds(Displaced, TEXT, TEXT, TEXT, COUNTS)
SUPPOSED = st.builds(
    Supposed,
    st.tuples(st.builds(NodeEdit, TEXT, st.booleans(), st.booleans(), st.dictionaries(TEXT, TEXT, max_size=2))),
    st.tuples(TEXT),
)
SCORED = st.builds(ScoredNode, TEXT, NUMBERS, st.dictionaries(TEXT, st.builds(PluginScore, *[NUMBERS] * 3), max_size=2))
NAMED = st.builds(NamedPod, TEXT, TEXT, TEXT)
FINDINGS = st.builds(
    NodeFindings,
    COUNTS,
    COUNTS,
    st.none() | STATUSES,
    rejected=st.tuples(st.builds(Rejected, STATUSES, COUNTS, st.tuples(TEXT), st.tuples(TEXT))),
    blocked=st.tuples(st.builds(Blocked, st.tuples(TEXT), COUNTS)),
    causes=st.tuples(st.builds(Cause, TEXT, TEXT, TEXT, COUNTS, pods=st.tuples(NAMED))),
    shortages=st.tuples(st.builds(Shortage, TEXT, st.dictionaries(TEXT, NUMBERS, max_size=2), COUNTS)),
    best=st.tuples(SCORED),
    verdicts=st.tuples(st.builds(NodeVerdict, TEXT, st.tuples(STATUSES), st.none() | SCORED)),
    models=st.tuples(st.builds(NodeModel, TEXT, COUNTS, st.dictionaries(TEXT, COUNTS, max_size=2))),
    candidates=st.tuples(st.builds(Candidate, TEXT, st.lists(VICTIMS, max_size=2))),
)
REMEMBERED = st.builds(Remembered, TEXT, TIMES, *[COUNTS] * 3, TEXT, NUMBERS, st.tuples(SCORED))
MESSAGES: dict[type, st.SearchStrategy[Any]] = {
    Propose: st.builds(Propose, COUNTS, COUNTS, COUNTS, COUNTS, TIES, st.lists(ASKS, max_size=2)),
    Proposals: st.builds(
        Proposals, TEXT, COUNTS, COUNTS, COUNTS, COUNTS, st.lists(COUNTS), st.lists(ANSWERS, max_size=2)
    ),
    Preempt: st.builds(
        Preempt,
        COUNTS,
        COUNTS,
        COUNTS,
        COUNTS,
        st.lists(
            st.builds(
                PreemptAsk,
                TEXT,
                TEXT,
                PODS,
                st.dictionaries(TEXT, NUMBERS, max_size=2),
                COUNTS,
                st.none() | st.dictionaries(TEXT, STATUSES, max_size=2),
            ),
            max_size=2,
        ),
    ),
    Candidates: st.builds(
        Candidates,
        TEXT,
        COUNTS,
        COUNTS,
        COUNTS,
        COUNTS,
        st.lists(COUNTS, max_size=2),
        st.lists(
            st.builds(
                ShardFindings,
                TEXT,
                st.none() | STATUSES,
                SUMMARIES,
                ineligible=TEXT,
                potential=COUNTS,
                candidates=st.lists(st.builds(Candidate, TEXT, st.lists(VICTIMS))),
                rejections=st.lists(st.builds(Rejections, STATUSES, COUNTS), max_size=2),
                faults=st.lists(TEXT, max_size=2),
            ),
            max_size=2,
        ),
    ),
    Commit: st.builds(
        Commit,
        COUNTS,
        COUNTS,
        st.lists(LOADS, max_size=2),
        st.lists(
            st.builds(Decision, ASSIGNMENTS, COUNTS, COUNTS, TEXT),
            max_size=2,
        ),
        st.lists(
            st.builds(Nominate, ASSIGNMENTS, COUNTS, COUNTS, st.lists(VICTIMS, max_size=2)),
            max_size=2,
        ),
        st.lists(TEXT, max_size=2),
    ),
    Committed: st.builds(
        Committed, COUNTS, COUNTS, COUNTS, st.lists(st.builds(Conflict, TEXT, TEXT, st.booleans()), max_size=2)
    ),
    Delta: st.builds(Delta, COUNTS, COUNTS, st.lists(CHANGES, max_size=3), st.lists(LOADS, max_size=2)),
    Heartbeat: st.builds(Heartbeat, COUNTS, COUNTS),
    State: st.builds(
        State,
        COUNTS,
        COUNTS,
        st.lists(
            st.builds(
                NodeState,
                NODES,
                st.dictionaries(TEXT, st.builds(PodOnNode, COUNTS, TEXT, st.none() | TIMES), max_size=2),
            ),
            max_size=2,
        ),
        st.lists(LOADS, max_size=2),
        st.lists(OBJECTS, max_size=2),
        st.lists(NOMINATED, max_size=2),
        st.lists(TEXT, max_size=2),
    ),
    BindingOrders: st.builds(BindingOrders, COUNTS, st.lists(ORDERS, max_size=2)),
    BinderBeat: st.builds(BinderBeat, TEXT, TEXT, COUNTS),
    BindingOutcomes: st.builds(
        BindingOutcomes,
        TEXT,
        COUNTS,
        COUNTS,
        st.lists(st.builds(BindingOutcome, TEXT, COUNTS, TEXT, wait=st.none() | TIMES), max_size=2),
    ),
    Recall: st.builds(Recall, COUNTS, COUNTS, TEXT),
    Recalled: st.builds(
        Recalled,
        TEXT,
        TEXT,
        COUNTS,
        COUNTS,
        COUNTS,
        COUNTS,
        st.lists(st.builds(HeldAttempt, TEXT, COUNTS, TEXT, TIMES), max_size=2),
    ),
    PermitAnswer: st.builds(PermitAnswer, TEXT, TEXT, st.booleans(), TEXT),
    FindAttempt: st.builds(FindAttempt, TEXT),
    AttemptFound: st.builds(AttemptFound, TEXT, COUNTS, st.lists(st.builds(Step, TIMES, TEXT)).map(tuple), TEXT),
    ListPermits: st.builds(ListPermits, TEXT),
    Permits: st.builds(
        Permits,
        TEXT,
        TEXT,
        st.lists(
            st.builds(PermitPending, TEXT, TEXT, TEXT, TEXT, TIMES, st.dictionaries(TEXT, TIMES, max_size=2)),
            max_size=2,
        ),
        COUNTS,
    ),
    Activate: st.builds(Activate, st.lists(TEXT, max_size=3)),
    Withdraw: st.builds(Withdraw, TEXT, COUNTS, TEXT, TEXT),
    Evict: st.builds(
        Evict, COUNTS, COUNTS, TEXT, TEXT, TEXT, TEXT, TEXT, st.lists(DISPLACED, max_size=2), st.lists(DISPLACED)
    ),
    Evicted: st.builds(Evicted, TEXT, COUNTS, TEXT, st.none() | PREEMPTIONS),
    Notices: st.builds(
        Notices,
        st.lists(
            st.builds(Notice, TEXT, TEXT, TEXT, TEXT, TEXT, TEXT, st.booleans(), st.booleans()),
            max_size=2,
        ),
    ),
    Watched: st.builds(Watched, COUNTS, COUNTS, st.lists(WATCHED, max_size=4)),
    WatchBeat: st.builds(WatchBeat, COUNTS, COUNTS),
    Relist: st.builds(Relist, TEXT),
    WatchSeen: st.builds(WatchSeen, TEXT, COUNTS, COUNTS),
    WorkerBeat: st.builds(WorkerBeat, TEXT, TEXT, COUNTS, COUNTS, st.lists(COUNTS, max_size=3), COUNTS, COUNTS),
    ExplainPod: st.builds(
        ExplainPod, TEXT, TEXT, TEXT, st.binary(max_size=4), st.tuples(TEXT), SUPPOSED, st.booleans(), st.booleans()
    ),
    PodExplained: st.builds(
        PodExplained, COUNTS, COUNTS, TIMES, TIMES, st.tuples(TEXT), findings=FINDINGS, journal=st.tuples(REMEMBERED)
    ),
    ExplainNodes: st.builds(
        ExplainNodes,
        *[COUNTS] * 4,
        TEXT,
        PODS,
        SUMMARIES,
        supposed=SUPPOSED,
        details=st.booleans(),
        everywhere=st.booleans(),
    ),
    ShardExplained: st.builds(
        ShardExplained, TEXT, *[COUNTS] * 4, st.lists(COUNTS, max_size=2), FINDINGS, SUMMARIES, incarnation=TEXT
    ),
    Assign: st.builds(Assign, COUNTS, COUNTS, st.lists(COUNTS, max_size=3), COUNTS),
    Take: st.builds(Take, COUNTS, COUNTS, COUNTS),
    Batch: st.builds(Batch, COUNTS, COUNTS, st.lists(st.builds(QueuedPod, BODIES, COUNTS, TIMES, TIMES), max_size=2)),
    Outcomes: st.builds(
        Outcomes,
        COUNTS,
        COUNTS,
        st.lists(st.builds(Outcome, TEXT, st.sampled_from(Verdict), TEXT, TEXT, st.tuples(TEXT)), max_size=2),
    ),
    Received: st.builds(Received, COUNTS, COUNTS),
    Forgotten: st.builds(Forgotten, COUNTS, st.lists(st.builds(ForgottenPod, TEXT, TEXT), max_size=2)),
    Assumed: st.builds(Assumed, COUNTS, st.lists(TEXT, max_size=3)),
    Absorbed: st.builds(Absorbed, COUNTS, COUNTS, COUNTS, COUNTS),
    Inspect: st.builds(Inspect),
    QueueContents: st.builds(QueueContents, *[st.lists(TEXT, max_size=2)] * 6),
    ListQueue: st.builds(ListQueue, TEXT, COUNTS, COUNTS, st.tuples(TEXT), TEXT, TEXT, st.booleans()),
    QueueListed: st.builds(
        QueueListed,
        TEXT,
        TIMES,
        st.dictionaries(TEXT, COUNTS, max_size=2),
        COUNTS,
        st.lists(
            st.builds(
                DescribedPod,
                *[TEXT] * 5,
                *[TIMES] * 3,
                history=st.tuples(st.builds(Move, TIMES, TEXT, TEXT)),
                body=st.binary(max_size=4),
            ),
            max_size=2,
        ),
        COUNTS,
    ),
    ListCache: st.builds(ListCache, TEXT, COUNTS, COUNTS),
    CacheListed: st.builds(
        CacheListed,
        TEXT,
        COUNTS,
        COUNTS,
        st.dictionaries(TEXT, COUNTS, max_size=2),
        COUNTS,
        st.lists(
            st.builds(
                CachedNode,
                TEXT,
                st.booleans(),
                *[st.dictionaries(TEXT, COUNTS, max_size=2)] * 2,
                COUNTS,
                *[st.lists(st.builds(CachedPod, TEXT, TEXT, st.booleans()), max_size=2)] * 2,
            ),
            max_size=2,
        ),
        COUNTS,
    ),
    ListLedger: st.builds(ListLedger, TEXT, COUNTS, COUNTS),
    LedgerListed: st.builds(
        LedgerListed,
        TEXT,
        COUNTS,
        st.lists(st.builds(AssumedPod, *[TEXT] * 4, COUNTS, TIMES, st.none() | TIMES, st.booleans()), max_size=2),
        COUNTS,
    ),
    ListEvictions: st.builds(ListEvictions, TIMES),
    EvictionsListed: st.builds(
        EvictionsListed,
        TIMES,
        TIMES,
        st.lists(st.builds(RecordedPreemption, TIMES, *[TEXT] * 4, st.none() | COUNTS, EVICTED_PODS, TEXT), max_size=2),
        COUNTS,
    ),
    ListGroups: st.builds(ListGroups, TEXT, COUNTS, COUNTS, TEXT, TEXT),
    GroupsListed: st.builds(
        GroupsListed,
        TEXT,
        TIMES,
        COUNTS,
        st.lists(
            st.builds(
                DescribedGroup,
                *[TEXT] * 3,
                st.booleans(),
                COUNTS,
                st.dictionaries(TEXT, COUNTS, max_size=2),
                st.none() | TIMES,
                COUNTS,
                TEXT,
                st.tuples(TEXT),
                st.tuples(st.builds(GroupMember, TEXT, TEXT, TEXT)),
            ),
            max_size=2,
        ),
        COUNTS,
    ),
    FindPod: st.builds(FindPod, TEXT, TEXT),
    PodFound: st.builds(PodFound, TEXT, TEXT, st.booleans()),
    MeasureNodes: st.builds(MeasureNodes),
    NodesMeasured: st.builds(NodesMeasured, COUNTS, *[st.dictionaries(TEXT, COUNTS, max_size=2)] * 2),
    CompareCache: st.builds(CompareCache),
    IsNominated: st.builds(IsNominated, TEXT, COUNTS, TEXT, st.lists(TEXT, max_size=2)),
    Nominated: st.builds(Nominated, COUNTS, st.booleans()),
    IsPlaced: st.builds(IsPlaced, TEXT),
    PlacedNow: st.builds(PlacedNow, COUNTS, st.booleans()),
    WhoOwns: st.builds(WhoOwns, TEXT),
    NameTaken: st.builds(NameTaken, COUNTS, TEXT, TEXT, TEXT, TIMES),
    Owner: st.builds(Owner, TEXT, TIMES),
    Outdated: st.builds(Outdated, COUNTS, TEXT, COUNTS),
    CacheCompared: st.builds(
        CacheCompared,
        COUNTS,
        COUNTS,
        COUNTS,
        st.lists(st.builds(Difference, *[TEXT] * 6), max_size=2),
        COUNTS,
        TEXT,
        st.lists(st.builds(WaitingPod, TEXT, TEXT, TEXT), max_size=2),
    ),
}

IN_FULL = (
    inspection.ReadState,
    inspection.StateRead,
    inspection.ReadConfiguration,
    inspection.ListPodsOn,
    inspection.PodsOn,
    inspection.ConfigurationRead,
    recording.RecordDecisions,
    recording.DeciderShown,
    recording.PodsShown,
    recording.RoundDecided,
    recording.SearchDecided,
    recording.CommitAnswered,
    status.AskStatus,
    status.ProcessStatus,
)
"""Messages of which one example stands for all, in which no field has its default."""
MESSAGES |= {message: st.just(example(message)) for message in IN_FULL}


def test_no_message_is_left_out() -> None:
    assert set(MESSAGES) == set(get_args(Message))


@pytest.mark.parametrize("kind", MESSAGES)
def test_a_message_arrives_as_it_was_sent(kind: type) -> None:
    @settings(deadline=None, max_examples=25)
    @given(MESSAGES[kind])
    def arrives(message: Any) -> None:
        arrived = copy(message)
        assert type(arrived) is kind
        assert arrived == message
        assert arrived is not message

    arrives()


@pytest.mark.parametrize("kind", MESSAGES)
def test_fields_of_a_later_version_are_skipped(kind: type) -> None:
    @settings(deadline=None, max_examples=5)
    @given(MESSAGES[kind])
    def skips(message: Any) -> None:
        plain = msgspec.msgpack.decode(encode(message))
        arrived = decode(msgspec.msgpack.encode(plain | {"of a later version": 1}))
        assert type(arrived) is kind
        assert msgspec.msgpack.decode(encode(arrived)) == plain

    skips()
