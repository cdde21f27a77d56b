"""What a recorder writes of what it hears: everything in order, and a word where something is missing."""

import msgspec

from shared.messages.evaluation import Ties
from shared.messages.recording import DeciderShown, PodsShown, Recorded, RecordedPod, RoundDecided
from shared.messages.state import Delta, Heartbeat, NodeState, NodeUpserted, State
from testing.builders import node, pod
from testing.inprocess.batches import queued_pod
from tools.cluster_image import ClusterImage
from tools.following import GAP_PATIENCE
from tools.recording.core import Effect, Load, RecorderCore, Tick, Write
from tools.recording.file import Entry, Gap

DECIDER = DeciderShown(7, "cycle", 1, "1.0", 256, Ties())
PODS = PodsShown(7, "cycle", 2, [RecordedPod("p", queued_pod(pod("p").build()))])


def state(seq: int, epoch: int = 1) -> State:
    return State(epoch, seq, [NodeState(node("a").capacity(cpu=1).build())], [])


def delta(seq: int, epoch: int = 1) -> Delta:
    return Delta(epoch, seq, [NodeUpserted(node(f"n{seq}").capacity(cpu=1).build())])


def decided(number: int, cycle: str = "cycle") -> RoundDecided:
    return RoundDecided(7, cycle, number, number, [], [], [])


def following(seq: int = 10) -> RecorderCore:
    core = RecorderCore()
    assert core.start() == [Load()]
    assert core.handle(state(seq), 0.0) == [Write(state(seq))]
    return core


def test_deltas_and_decisions_are_written_as_they_come() -> None:
    core = following()
    heard: list[Delta | Recorded] = [delta(11), DECIDER, PODS, decided(3), delta(12)]
    for each in heard:
        assert core.handle(each, 0.0) == [Write(each)]
    assert core.gaps == 0


def test_what_comes_before_the_state_follows_it() -> None:
    core = RecorderCore()
    core.start()
    effects: list[Effect] = []
    for heard in (delta(9), delta(10), delta(11), DECIDER, decided(2), delta(12)):
        effects += core.handle(heard, 0.0)
    assert effects == []
    expected: list[Entry] = [state(10), delta(11), delta(12), DECIDER, decided(2)]
    assert core.handle(state(10), 0.0) == [Write(each) for each in expected]


def test_a_delta_that_is_late_is_waited_for() -> None:
    core = following()
    assert core.handle(delta(12), 0.0) == []
    assert core.handle(Tick(), GAP_PATIENCE - 0.1) == []
    assert core.handle(delta(11), 0.9 * GAP_PATIENCE) == [Write(delta(11)), Write(delta(12))]
    assert core.handle(Tick(), 10.0) == []


def test_a_lost_delta_is_a_gap_and_a_new_state_follows() -> None:
    core = following()
    core.handle(delta(12), 0.0)
    assert core.handle(Tick(), GAP_PATIENCE) == [Write(Gap("deltas from 11")), Load()]
    assert core.handle(decided(1), 1.0) == []
    assert core.handle(state(12), 2.0) == [Write(state(12)), Write(decided(1))]
    assert core.gaps == 1


def test_a_heartbeat_tells_of_a_lost_last_delta() -> None:
    core = following()
    core.handle(Heartbeat(1, 11, 5.0), 0.0)
    assert core.handle(Tick(), GAP_PATIENCE) == [Write(Gap("deltas from 11")), Load()]


def test_a_new_term_of_the_snapshot_begins_with_its_state() -> None:
    core = following()
    core.handle(delta(11), 0.0)
    expected = [Write(Gap("what changed between two terms of the snapshot")), Load()]
    assert core.handle(delta(100, epoch=2), 0.0) == expected
    assert core.handle(delta(12), 0.0) == []
    assert core.handle(state(99), 0.0) == [Load()], "a state of the term before"
    assert core.handle(state(99, epoch=2), 0.0) == [Write(state(99, epoch=2)), Write(delta(100, epoch=2))]


def test_lost_decisions_are_gaps() -> None:
    core = following()
    core.handle(DECIDER, 0.0)
    assert core.handle(decided(5), 0.0) == [Write(Gap("messages 2 to 4 of the cycle")), Write(decided(5))]
    assert core.handle(decided(5), 0.0) == [], "doubled"
    other = decided(1, "next")
    assert core.handle(other, 0.0) == [Write(Gap("the decisions between two cycles")), Write(other)]


def test_a_cycle_that_was_not_asked_in_time_is_a_gap() -> None:
    """Not if it tells another recorder how it decides."""
    core = following()
    core.handle(DECIDER, 0.0)
    again = msgspec.structs.replace(DECIDER, number=2, recording="another")
    assert core.handle(again, 0.0) == [Write(again)]
    again = msgspec.structs.replace(DECIDER, number=3)
    assert core.handle(again, 0.0) == [Write(Gap("the decisions while the cycle was not asked")), Write(again)]


def test_a_further_file_begins_with_all_that_a_replay_needs() -> None:
    core = following()
    for each in (DECIDER, PODS, delta(11)):
        core.handle(each, 0.0)
    image = ClusterImage(state(10))
    image.apply(delta(11))
    pods = msgspec.structs.replace(PODS, number=DECIDER.number)
    assert list(core.beginning()) == [DECIDER, image.state(frozenset({0}), 1), pods]
