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
from tools.recording.file import Entry, Gap
from tools.recording.image import ClusterImage

GAP_PATIENCE = 0.5
"""Seconds to wait for a missing delta."""
MAX_EARLY = 1 << 16
"""Deltas, and decisions, that wait for a state or a delta."""
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
        self._loading = False
        self._epoch = 0
        self._early: dict[int, Delta] = {}
        self._held: deque[Recorded] = deque(maxlen=MAX_EARLY)
        self._gap_ends: float | None = None
        self._decider: DeciderShown | None = None
        self._last: tuple[str, int] = ("", 0)
        """The cycle and the number of its last message."""
        self._pods: BoundedDict[str, RecordedPod] = BoundedDict(MAX_PODS)

    def start(self) -> list[Effect]:
        self._loading = True
        return [Load()]

    def handle(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Delta():
                return [*self._on_delta(event, now)]
            case Heartbeat():
                return [*self._on_heartbeat(event, now)]
            case State():
                return [*self._on_state(event, now)]
            case Tick():
                return [*self._on_tick(now)]
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
        if delta.epoch < self._epoch:
            return
        yield from self._notice(delta.epoch)
        self._early[delta.seq] = delta
        if len(self._early) > MAX_EARLY:
            del self._early[min(self._early)]
        yield from self._catch_up(now)

    def _on_heartbeat(self, heartbeat: Heartbeat, now: float) -> Iterator[Effect]:
        if heartbeat.epoch < self._epoch:
            return
        yield from self._notice(heartbeat.epoch)
        if self.image is not None and not self._loading:
            if heartbeat.seq > self.image.seq and self._gap_ends is None:
                self._gap_ends = now + GAP_PATIENCE
            yield Write(heartbeat)

    def _on_state(self, state: State, now: float) -> Iterator[Effect]:
        if not self._loading:
            return
        if state.epoch < self._epoch:
            yield Load()
            return
        self._epoch, self._loading = state.epoch, False
        self.image = ClusterImage(state)
        self._early = {seq: delta for seq, delta in self._early.items() if seq > state.seq}
        yield Write(state)
        yield from self._catch_up(now)
        while self._held:
            yield Write(self._held.popleft())

    def _on_tick(self, now: float) -> Iterator[Effect]:
        if self._gap_ends is None or now < self._gap_ends or self._loading or self.image is None:
            return
        self._gap_ends = None
        yield from self._lose(f"deltas from {self.image.seq + 1}")

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
        if self._loading:
            self._held.append(message)
        else:
            yield Write(message)

    def _notice(self, epoch: int) -> Iterator[Effect]:
        """A new term of the snapshot begins with a state of its own."""
        if epoch > self._epoch:
            is_first, self._epoch = not self._epoch, epoch
            self._early.clear()
            if not is_first:
                yield from self._lose("what changed between two terms of the snapshot")

    def _lose(self, what: str) -> Iterator[Effect]:
        if not self._loading:
            self._loading = True
            yield self._gap(what)
            yield Load()

    def _gap(self, what: str) -> Write:
        self.gaps += 1
        return Write(Gap(what))

    def _catch_up(self, now: float) -> Iterator[Effect]:
        image = self.image
        if image is None or self._loading:
            return
        while (following := self._early.pop(image.seq + 1, None)) is not None:
            image.apply(following)
            yield Write(following)
        self._early = {seq: delta for seq, delta in self._early.items() if seq > image.seq} if self._early else {}
        if not self._early:
            self._gap_ends = None
        elif self._gap_ends is None:
            self._gap_ends = now + GAP_PATIENCE
