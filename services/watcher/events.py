"""Events that the watcher's core handles, and effects that it returns."""

from dataclasses import dataclass

from shared.kube.listwatch import ListDone, ListPage, ListStarted, ObjectEvents, WatchStarted
from shared.messages.watch import Kind, Unreadable, WatchBeat, Watched


@dataclass(frozen=True, slots=True)
class Received:
    """Event: what the API server said about one kind of objects. `at`: the Unix time at which it was read."""

    kind: Kind
    what: ListStarted | ListPage | ListDone | WatchStarted | ObjectEvents
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class KindUnavailable:
    """Event: the server does not have this kind of objects, or does not allow us to read it."""

    kind: Kind
    problem: str


@dataclass(frozen=True, slots=True)
class NewestShown:
    """Event: the highest resourceVersions that a follower was shown, by kind, perhaps by earlier watchers."""

    versions: dict[str, int]


@dataclass(frozen=True, slots=True)
class FollowersRead:
    """Event: whether all followers read AlikePods."""

    alike: bool


@dataclass(frozen=True, slots=True)
class RelistRequested:
    """Event: a follower requests a listing, of these kinds only if any are named."""

    kinds: frozenset[Kind] = frozenset()


@dataclass(frozen=True, slots=True)
class Tick:
    """Event: time has passed."""


@dataclass(frozen=True, slots=True)
class Beat:
    """Event: it is time to repeat the number of the last message."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Effect: publish to all followers, in this order."""

    message: Watched | WatchBeat


@dataclass(frozen=True, slots=True)
class ListAgain:
    """Effect: list these kinds again; those that are being listed, after that."""

    kinds: frozenset[Kind]


@dataclass(frozen=True, slots=True)
class ReportProblem:
    """Effect: report to its owner an object that cannot be read, or only in part; the owner does not know it yet.

    `generation`: the object's. `said_unscheduled`: the pod's PodScheduled condition is False already.
    """

    change: Unreadable
    generation: int
    said_unscheduled: bool


@dataclass(frozen=True, slots=True)
class ObjectSkipped:
    """Effect: an object without a readable name was left out."""

    kind: Kind
    problem: str


@dataclass(frozen=True, slots=True)
class StaleState:
    """Effect: the server showed a state older than one before. Nothing of it was published."""

    kind: Kind
    problem: str


@dataclass(frozen=True, slots=True)
class KindMissing:
    """Effect: this kind counts as one without objects, until the server serves it."""

    kind: Kind
    problem: str


Event = Received | KindUnavailable | NewestShown | FollowersRead | RelistRequested | Tick | Beat
Effect = Publish | ListAgain | ReportProblem | ObjectSkipped | StaleState | KindMissing
