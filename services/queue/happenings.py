"""What happens that may help pods that were rejected: events with their objects, and whom they are meant for."""

from dataclasses import dataclass
from typing import Any

from shared.framework.clusterevents import EVERYTHING, NAMES, Action, ClusterEvent, Resource
from shared.model.objects import Pod

ASSIGNED_POD_DELETED = ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)


@dataclass(frozen=True, slots=True, eq=False)
class Happening:
    """Without objects it is not to be asked about: whoever registered the event is taken to be helped.

    `why`: the label of moves that come of it. `at_most`: pods of a higher priority that wait are not looked at; `but`:
    nor is this one. `only`: it concerns this pod alone. The latter three are uids or a priority.
    """

    event: ClusterEvent
    before: Any = None
    now: Any = None
    why: str = ""
    at_most: int | None = None
    but: str = ""
    only: str = ""

    @property
    def label(self) -> str:
        return self.why or label(self.event)

    @property
    def about(self) -> str:
        """The uid of the pod that it has happened to; empty if it was something else."""
        subject = self.before if self.now is None else self.now
        return subject.uid if isinstance(subject, Pod) else ""

    @property
    def is_shown(self) -> bool:
        """Whether there is an object to look at."""
        return self.before is not None or self.now is not None


def anything(why: str = "") -> Happening:
    """Whoever waits may be helped."""
    return Happening(EVERYTHING, why=why)


def room(pod: Pod | None = None, *, at_most: int | None = None, but: str = "") -> Happening:
    """A pod has left its node, or will not come to it; not known which one, if it is None."""
    return Happening(ASSIGNED_POD_DELETED, pod, at_most=at_most, but=but)


def label(event: ClusterEvent) -> str:
    """What kube-scheduler's metrics call it."""
    return event.resource + NAMES[event.action]
