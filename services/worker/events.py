"""Events and effects of the worker's core."""

from dataclasses import dataclass

from shared.cluster.nodetable import NodeTable
from shared.messages.explaining import ExplainNodes, ShardExplained
from shared.messages.identity import NameTaken
from shared.messages.preemption import Candidates, Preempt
from shared.messages.rounds import Proposals, Propose
from shared.messages.state import Delta, Heartbeat, State
from shared.messages.workers import Assign


@dataclass(frozen=True, slots=True)
class Tick:
    """Event: time has passed."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """Event: the state that was requested, with its table."""

    state: State
    table: NodeTable


@dataclass(frozen=True, slots=True)
class Answer:
    """Effect: send this to the cycle."""

    message: Proposals | Candidates | ShardExplained


@dataclass(frozen=True, slots=True)
class Reload:
    """Effect: load the whole state of this worker's shards; it becomes a Loaded or a State event."""


@dataclass(frozen=True, slots=True)
class End:
    """Effect: end this process, because another one has its name, or because the cycle distrusts it (why, as text)."""

    why: NameTaken | str


Event = Delta | Heartbeat | State | Loaded | Assign | Propose | Preempt | ExplainNodes | NameTaken | Tick
Effect = Answer | Reload | End
