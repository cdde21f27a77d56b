"""What the watcher is told, and what it wants done."""

from dataclasses import dataclass

from shared.kube.listwatch import Events, ListBegins, ListEnds, ListPage, Watching
from shared.messages.watch import Kind, Unreadable, WatchBeat, Watched


@dataclass(frozen=True, slots=True)
class Heard:
    """Event: what the API server says of one kind of objects. `at`: the Unix time at which it was read."""

    kind: Kind
    what: ListBegins | ListPage | ListEnds | Watching | Events
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class Denied:
    """Event: the server has no such kind of objects, or does not let us see them."""

    kind: Kind
    problem: str


@dataclass(frozen=True, slots=True)
class Asked:
    """Event: somebody needs a listing."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Event: time has passed."""


@dataclass(frozen=True, slots=True)
class Beat:
    """Event: it is time to say which message was the last."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Effect: to everybody, in this order."""

    message: Watched | WatchBeat


@dataclass(frozen=True, slots=True)
class ListAgain:
    """Effect: list all kinds anew; those that are being listed, after that."""


@dataclass(frozen=True, slots=True)
class Complain:
    """Effect: an object cannot be read, or not whole, which its owner does not know yet.

    `generation`: the object's; `said_unscheduled`: a pod's PodScheduled condition is False already.
    """

    change: Unreadable
    generation: int
    said_unscheduled: bool


@dataclass(frozen=True, slots=True)
class Skipped:
    """Effect: an object was left out that not even has a name."""

    kind: Kind
    problem: str


@dataclass(frozen=True, slots=True)
class Stale:
    """Effect: the server has shown a state that is older than what it showed before. Nothing of it was told."""

    kind: Kind
    problem: str


@dataclass(frozen=True, slots=True)
class Missing:
    """Effect: from now on there counts as none of this kind, until the server shows them."""

    kind: Kind
    problem: str


Event = Heard | Denied | Asked | Tick | Beat
Effect = Publish | ListAgain | Complain | Skipped | Stale | Missing
