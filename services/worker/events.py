"""Events and effects of the worker's core."""

from dataclasses import dataclass

from shared.messages.identity import NameTaken
from shared.messages.preemption import Candidates, Preempt
from shared.messages.rounds import Explain, Explained, Proposals, Propose
from shared.messages.state import Delta, Heartbeat, State
from shared.messages.workers import Assign


@dataclass(frozen=True, slots=True)
class Tick:
    """Event: time has passed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """Effect: send this to the cycle."""

    message: Proposals | Explained | Candidates


@dataclass(frozen=True, slots=True)
class Reload:
    """Effect: fetch the whole state of this worker's shards; it comes back as a State event."""


@dataclass(frozen=True, slots=True)
class Distrusted:
    """Effect: end this process. The cycle believes it no more; the next one reloads its state."""

    why: str


@dataclass(frozen=True, slots=True)
class Unnamed:
    """Effect: end this process. Another one has its name."""

    taken: NameTaken


Event = Delta | Heartbeat | State | Assign | Propose | Explain | Preempt | NameTaken | Tick
Effect = Answer | Reload | Distrusted | Unnamed
