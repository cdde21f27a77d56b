"""A standby knows where what the leader has published differs from what it knows itself, and continues from there."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from services.snapshot.core import SnapshotCore
from services.snapshot.events import Beat, Event, NodeGone, NodeSeen, PodDeleted, PodSeen
from services.snapshot.state.published import MAX_DIFFERENCES, Published
from services.worker.state_replica import StateReplica
from shared.messages.state import Change, Delta, Heartbeat, NodeRemoved, PodGone, PodPlaced
from testing.inprocess.pipeline import bound
from tests.rounds.support import SnapshotLog, commit, finished, small_node, small_pod

SHARDS = 4
NAMES = ("a", "b", "c")
PODS = {name: small_pod(name) for name in "uvwxyz"}


@dataclass
class Play:
    """A leader, its standby, and a worker. Each watch event reaches the two of them in its own time."""

    leader: SnapshotLog = field(default_factory=lambda: SnapshotLog(epoch=3))
    standby: SnapshotCore = field(default_factory=lambda: SnapshotCore(0))
    watch: list[Event] = field(default_factory=list)
    heard: dict[str, int] = field(default_factory=lambda: {"leader": 0, "standby": 0})
    said: int = 0
    rounds: int = 0

    def __post_init__(self) -> None:
        self.published = Published(self.standby.cluster, SHARDS)
        self.worker = StateReplica(frozenset(range(SHARDS)), SHARDS)
        self.worker.take_state(self.leader.core.state(range(SHARDS), SHARDS), 0.0)
        self.published.hear(self.leader.core.heartbeat())

    def step(self, what: str, pod: str, node: str) -> None:
        match what:
            case "node":
                self.watch.append(NodeSeen(small_node(node)))
            case "node gone" if node in self.leader.core.cluster.nodes and node in self.standby.cluster.nodes:
                self.watch.append(NodeGone(node))
            case "bound":
                self.watch.append(PodSeen(bound(PODS[pod], node)))
            case "labelled":
                metadata = replace(PODS[pod].metadata, labels={"at": str(len(self.watch))})
                self.watch.append(PodSeen(bound(replace(PODS[pod], metadata=metadata), node)))
            case "deleted":
                self.watch.append(PodDeleted(PODS[pod].uid))
            case "leader" | "standby":
                self.hears(what)
            case "decide":
                self.rounds += 1
                self.leader.handle(commit(self.rounds, (PODS[pod], node, self.leader.core.seq), epoch=3))
            case "finished" if PODS[pod].uid in self.leader.core.ledger:
                self.leader.handle(finished(PODS[pod].uid, self.leader.attempt(PODS[pod])))
            case "compare":
                self.compare()
        self.publish()

    def hears(self, who: str) -> None:
        for event in self.watch[self.heard[who] : self.heard[who] + 1]:
            self.heard[who] += 1
            if who == "leader":
                self.leader.handle(event)
            else:
                self.published.changed(_changes(self.standby.handle(event, 0.0)))

    def publish(self) -> None:
        for delta in self.leader.deltas[self.said :]:
            self.published.hear(delta)
            self.worker.take_delta(delta, 0.0)
        self.said = len(self.leader.deltas)

    def compare(self) -> None:
        self.leader.handle(Beat())
        self.publish()
        left = sorted(self.published.uncompared)[:2]
        if left:
            state = self.leader.core.state(left, SHARDS)
            assert self.published.compare(left, state, others=True)

    def take_over(self) -> None:
        """The leader has written everything, and the standby has read at least as much of the watch."""
        self.leader.handle(Beat())
        self.publish()
        while self.heard["standby"] < self.heard["leader"]:
            self.hears("standby")
        core, ledger = self.leader.core, self.leader.core.stored_ledger
        assert self.published.take_over(core.epoch, core.seq, ledger)
        self.standby.take_over(core.epoch + 1, ledger, core.answer, 0.0)
        while self.heard["standby"] < len(self.watch):
            self.hears("standby")
        epoch, seq = self.published.position
        self.worker.take_heartbeat(Heartbeat(self.standby.epoch, self.standby.seq, 0.0, None, epoch, seq), 0.0)
        deltas = self.published.catch_up()
        for uid, node in self.published.nodes_before(deltas).items():
            assert core.cluster.pods[uid].node == node
        for delta in deltas:
            assert not self.worker.take_delta(delta, 0.0)
        assert self.worker.loaded and self.worker.seq == self.standby.seq


def _changes(effects: Sequence[object]) -> list[Change]:
    return [change for effect in effects if isinstance(effect, Delta) for change in effect.changes]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            (
                *("node", "node gone", "bound", "labelled", "deleted"),
                *("leader", "leader", "standby", "standby", "decide", "finished"),
            )
        ),
        st.sampled_from(sorted(PODS)),
        st.sampled_from(NAMES),
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=150)
@given(st.tuples(STEPS, STEPS, STEPS))
def test_a_worker_that_goes_on_knows_what_the_new_leader_knows(parts: tuple[list[tuple[str, str, str]], ...]) -> None:
    play = Play()
    for steps in parts:
        for step in steps:
            play.step(*step)
        play.compare()
    play.compare()
    play.take_over()
    cluster, table = play.standby.cluster, play.worker.table
    assert [name for name in NAMES if name in table] == [name for name in NAMES if name in cluster.nodes]
    own = {uid: (placed.node, placed.load) for uid, placed in cluster.pods.items() if placed.node in cluster.nodes}
    assert {uid: (node, load) for uid, node, load in table.placed()} == own


def a_play() -> Play:
    """Both know a node with a pod; all is compared."""
    play = Play()
    for what in ("node", "bound"):
        play.step(what, "u", "a")
        play.step("leader", "", "")
        play.step("standby", "", "")
    play.compare()
    play.compare()
    return play


def test_only_what_differs_is_published() -> None:
    play = a_play()
    assert play.published.ends_at(3, play.leader.core.seq)
    play.step("deleted", "u", "a")
    play.step("standby", "", "")
    assert play.published.take_over(3, play.leader.core.seq, ())
    play.standby.take_over(4, (), None, 0.0)
    (delta,) = play.published.catch_up()
    assert delta.changes[0] == PodGone(PODS["u"].uid) and len(delta.changes) == 2  # and the shared hostnames


def test_changes_that_the_standby_has_postponed_are_published() -> None:
    play = a_play()
    play.step("labelled", "u", "a")
    play.step("standby", "", "")
    assert play.standby.cluster.has_postponed
    assert play.published.take_over(3, play.leader.core.seq, ())
    play.standby.take_over(4, (), None, 0.0)
    (delta,) = play.published.catch_up()
    assert isinstance(delta.changes[0], PodPlaced) and delta.loads[delta.changes[0].load].labels["at"]


def test_a_missing_delta_makes_the_state_unknown() -> None:
    play = a_play()
    seq = play.leader.core.seq
    play.published.hear(Delta(3, seq + 2, [NodeRemoved("a")]))
    assert play.published.uncompared and not play.published.ends_at(3, seq + 2)


def test_a_heartbeat_shows_that_a_delta_is_missing() -> None:
    play = a_play()
    play.published.hear(Heartbeat(3, play.leader.core.seq))
    assert not play.published.uncompared
    play.published.hear(Heartbeat(3, play.leader.core.seq + 1))
    assert play.published.uncompared


def test_a_state_of_another_number_cannot_be_continued() -> None:
    play = a_play()
    seq = play.leader.core.seq
    assert not play.published.ends_at(3, seq - 1)
    assert not play.published.ends_at(2, seq)


def test_too_many_differences_make_the_state_unknown() -> None:
    play = a_play()
    gone: list[Change] = [PodGone(f"uid-{number}") for number in range(MAX_DIFFERENCES + 1)]
    play.published.changed(gone)
    assert play.published.uncompared
