"""Made-up parts of messages."""

import msgspec
from hypothesis import strategies as st

from flotilla.results import Code, Status
from shared.cluster.volumes import VolumeDecision
from shared.messages.binding import (
    Displaced,
    EvictedPod,
    Preemption,
)
from shared.messages.evaluation import Rejections, Summary, Ties
from shared.messages.explaining import (
    Blocked,
    Cause,
    NamedPod,
    NodeEdit,
    NodeFindings,
    NodeModel,
    NodeVerdict,
    PluginScore,
    Rejected,
    Remembered,
    ScoredNode,
    Shortage,
    Supposed,
)
from shared.messages.preemption import Candidate, Victim
from shared.messages.rounds import ClassAnswer, ClassAsk, Ladder
from shared.messages.state import (
    Assignment,
    BindingOrder,
    NodeRemoved,
    NodeUpserted,
    NominationGone,
    ObjectRemoved,
    ObjectUpserted,
    PodGone,
    PodNominated,
    PodPlaced,
    SharedHostnames,
)
from shared.messages.watch import (
    Kind,
    ListingBegins,
    ListingEnds,
    NodeChange,
    ObjectChange,
    PodChange,
    Unreadable,
)
from shared.model.load import PodLoad, load_of
from shared.model.objects import ObjectKind, encode_msgpack
from shared.model.resources import HostPort
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
