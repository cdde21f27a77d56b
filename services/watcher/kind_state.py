"""What the watcher remembers about each kind: whether the server serves it, how far it has come, reported problems."""

from dataclasses import dataclass

from shared.model.base import version_number

REFUSAL_TIMEOUT = 60.0
"""Seconds that the server may refuse a kind that was listed before; from then on the kind counts as missing."""
MAX_REPORTED = 10_000
"""Unusable objects remembered per kind; owners of further ones may get their report more than once."""
CLAIM_PATIENCE = 10.0
"""Seconds in which the API server may come up to the version that a follower claims to have been shown."""


class Availability:
    """Whether the server serves a kind of objects.

    A kind that was never listed is missing at once: the pipeline starts without it. One that was listed before is
    missing only after REFUSAL_TIMEOUT, because a server that has just started may not know its kinds yet.
    """

    def __init__(self) -> None:
        self.listed = False
        self.missing = False
        self._refused_since: float | None = None

    def refused(self, now: float) -> bool:
        """The server refused the kind. Return whether that makes it missing."""
        if self._refused_since is None:
            self._refused_since = now
        if self.missing or (self.listed and now < self._refused_since + REFUSAL_TIMEOUT):
            return False
        self.missing = True
        return True

    def served(self) -> bool:
        """The server returned objects. Return whether the kind was missing until now."""
        self._refused_since = None
        was_missing, self.missing = self.missing, False
        return was_missing


@dataclass(slots=True)
class VersionOrder:
    """How far the API server has come with a kind; it must not go back.

    A server behind a load balancer, or one with an old cache, may show an older state than another one did: bound pods
    look unbound, and existing pods are missing. Versions of one kind compare as integers (documented by Kubernetes
    since 1.35, true before). A version that is no integer is trusted.

        list or event with a version --not older than `newest`--> accepted, and the new mark
                                     +-older--------------------> refused: relist after a pause

    A watch delivers events in the order of their versions, so one mark per kind is enough. A new watcher learns from
    the queue and the snapshot what earlier ones have shown. They may be wrong, so a claim that the server does not
    reach within CLAIM_PATIENCE is dropped: a follower that was shown that version refuses older ones by itself, and
    claims it again.
    """

    newest: int = 0
    """The newest version that this watcher has shown, in a list or an event."""
    claimed: int = 0
    """The newest version that earlier watchers have shown, according to followers."""
    floor: int = 0
    """Older events were seen before, or were superseded by a list."""
    _claim_ends: float | None = None

    def reach(self, number: int) -> None:
        if number > self.newest:
            self.newest = number

    def claim(self, number: int) -> None:
        self.claimed = max(self.claimed, number)

    def is_old_list(self, version: str, now: float) -> bool:
        """Whether a list of this version would go back in time."""
        number = version_number(version)
        if 0 < number < self.newest:
            return True
        if not 0 < number < self.claimed:
            self._claim_ends = None
            return False
        if self._claim_ends is None:
            self._claim_ends = now + CLAIM_PATIENCE
        if now < self._claim_ends:
            return True
        self.claimed, self._claim_ends = 0, None
        return False

    def accept_list(self, version: str, since: str, now: float) -> bool:
        """A list of this version is complete; False if it goes back in time. Events from `since` on follow."""
        if self.is_old_list(version, now):
            return False
        self.reach(version_number(version))
        self.floor = version_number(since)
        return True

    def accept_event(self, version: str) -> bool:
        """False if an event of this version goes back in time."""
        number = version_number(version)
        if 0 < number < self.floor:
            return False
        if number:
            self.floor = number
            self.reach(number)
        return True


class ReportedProblems:
    """The problems reported to owners of a kind's unusable objects, by object.

    By problem, not by version, because the report itself changes the object. Forgotten with the object or its problem.
    """

    def __init__(self) -> None:
        self._reported: dict[str, str] = {}
        self._before_listing: dict[str, str] = {}
        """Dropped at the end of the listing in progress, except for objects that it names."""

    def __len__(self) -> int:
        return len(self._reported) + len(self._before_listing)

    def is_new(self, key: str, problem: str) -> bool:
        reported = self._reported.pop(key, None) or self._before_listing.pop(key, None)
        if len(self._reported) >= MAX_REPORTED:
            del self._reported[next(iter(self._reported))]
        self._reported[key] = problem
        return reported != problem

    def settle(self, key: str) -> None:
        self._reported.pop(key, None)
        self._before_listing.pop(key, None)

    def begin_listing(self) -> None:
        self._before_listing = (self._before_listing | self._reported) if len(self) <= MAX_REPORTED else self._reported
        self._reported = {}

    def end_listing(self) -> None:
        self._before_listing = {}


class KindState:
    def __init__(self) -> None:
        self.availability = Availability()
        self.versions = VersionOrder()
        self.problems = ReportedProblems()
        self.is_complete = False
        """Whether all of it is published: a listing has ended, and none is under way."""

    def resume(self, version: int) -> None:
        """An earlier watcher has published all of it up to this version."""
        self.versions = VersionOrder(newest=version, floor=version)
        self.availability.listed = self.is_complete = True
