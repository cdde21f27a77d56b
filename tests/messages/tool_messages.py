"""Made-up questions of tools to services, and their answers."""

from typing import Any

from hypothesis import strategies as st

from shared.messages.explaining import (
    ExplainNodes,
    ExplainPod,
    PodExplained,
    ShardExplained,
)
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
from tests.messages.parts import COUNTS, EVICTED_PODS, FINDINGS, PODS, REMEMBERED, SUMMARIES, SUPPOSED, TEXT, TIMES

TOOL_MESSAGES: dict[type, st.SearchStrategy[Any]] = {
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
