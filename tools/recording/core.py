"""RecorderCore: what is written into a recording, from what a recorder hears.

    loading --state--> following --a delta is missing, or the snapshot's next term--> loading
                        |    ^
                        +----+ each delta, and what the cycle decides, in the order in which they come

Decisions are held back while a state is loaded, so that they come after it in the file. Nothing is lost without a word:
deltas and what the cycle says are numbered, and a recording says where numbers are missing.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from shared.bounded import BoundedDict
from shared.messages.recording import DeciderShown, PodsShown, Recorded, RecordedPod
from shared.messages.state import Delta, Heartbeat, State
from tools.cluster_image import ClusterImage
from tools.following import DeltaFollower
from tools.recording.file import Entry, Gap

MAX_HELD = 1 << 16
"""Decisions that wait for a state."""
MAX_PODS = 1 << 14
"""Pods that a next file of the recording begins with."""


@dataclass(frozen=True, slots=True)
class Load:
    """Effect: load the whole state, at least as new as all deltas heard. The shell feeds it back as a State."""


@dataclass(frozen=True, slots=True)
class Write:
    """Effect: write this into the file."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Tick:
    """Event: time has passed."""


Event = Delta | Heartbeat | State | Recorded | Tick
Effect = Load | Write


class RecorderCore:
    def __init__(self, recording: str = "") -> None:
        """`recording`: as the cycle is asked."""
        self._recording = recording
        self.image: ClusterImage | None = None
        self.gaps = 0
        self._follower = DeltaFollower()
        self._held: deque[Recorded] = deque(maxlen=MAX_HELD)
        self._decider: DeciderShown | None = None
        self._last: tuple[str, int] = ("", 0)
        """The cycle and the number of its last message."""
        self._pods: BoundedDict[str, RecordedPod] = BoundedDict(MAX_PODS)

    def start(self) -> list[Effect]:
        return [Load()]

    def handle(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Delta():
                return [*self._on_delta(event, now), *self._check(now)]
            case Heartbeat():
                return [*self._on_heartbeat(event, now), *self._check(now)]
            case State():
                return [*self._on_state(event, now)]
            case Tick():
                return [*self._check(now)]
            case _:
                return [*self._on_decision(event)]

    def beginning(self) -> Iterator[Entry]:
        """What a further file of the recording begins with, after its header."""
        if self._decider is not None:
            yield self._decider
        if self.image is not None:
            yield self.image.state(frozenset({0}), 1)
        if self._decider is not None and self._pods:
            decider = self._decider
            yield PodsShown(decider.epoch, decider.cycle, decider.number, list(self._pods.values()))

    @property
    def is_recording(self) -> bool:
        """Whether a state is there, so that decisions are of use."""
        return self.image is not None

    # Inside

    def _on_delta(self, delta: Delta, now: float) -> Iterator[Effect]:
        yield from self._follow(self._follower.take(delta, now))

    def _on_heartbeat(self, heartbeat: Heartbeat, now: float) -> Iterator[Effect]:
        self._follower.take(heartbeat, now)
        if self._follower.loaded and heartbeat.epoch == self._follower.epoch:
            yield Write(heartbeat)

    def _on_state(self, state: State, now: float) -> Iterator[Effect]:
        if self._follower.loaded:
            return
        following = self._follower.load(state.epoch, state.seq, now)
        if following is None:
            yield Load()
            return
        self.image = ClusterImage(state)
        yield Write(state)
        yield from self._follow(following)
        while self._held:
            yield Write(self._held.popleft())

    def _follow(self, deltas: list[Delta]) -> Iterator[Effect]:
        for delta in deltas:
            if self.image is not None:
                self.image.apply(delta)
                yield Write(delta)

    def _check(self, now: float) -> Iterator[Effect]:
        """A new state follows what was lost."""
        if lost := self._follower.lost(now):
            yield self._gap(lost)
            yield Load()

    def _on_decision(self, message: Recorded) -> Iterator[Effect]:
        cycle, number = self._last
        self._last = (message.cycle, message.number)
        if isinstance(message, DeciderShown):
            before, self._decider = self._decider, message
            is_ours = before is not None and message.recording == self._recording
            if is_ours and cycle == message.cycle and message.number > number:
                yield self._gap("the decisions while the cycle was not asked")
        if cycle == message.cycle and message.number <= number:
            return
        if cycle == message.cycle and message.number > number + 1:
            yield self._gap(f"messages {number + 1} to {message.number - 1} of the cycle")
        elif cycle and cycle != message.cycle:
            yield self._gap("the decisions between two cycles")
        if isinstance(message, PodsShown):
            for each in message.pods:
                self._pods[each.uid] = each
        if self._follower.loaded:
            yield Write(message)
        else:
            self._held.append(message)

    def _gap(self, what: str) -> Write:
        self.gaps += 1
        return Write(Gap(what))
