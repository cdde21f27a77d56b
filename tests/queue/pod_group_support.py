"""Members of gangs, standing in a queue that is played by hand."""

from typing import Any

from services.queue.places import Place
from services.queue.scheduling.pod_groups import Gangs
from services.queue.scheduling.queued_pod_info import Entry
from services.queue.standing import HOLDERS
from shared.framework.status import Status
from shared.model.objects import GROUP_LABEL, GroupApi, GroupRef, ObjectKind, PodGroup, object_from, pod_from
from shared.plugins.frameworks import load_frameworks

FRAMEWORK = load_frameworks(None)["default-scheduler"]
OURS, THEIRS = GroupRef(GroupApi.SCHEDULING, "default/g"), GroupRef(GroupApi.COSCHEDULING, "default/g")
SHUT = "SchedulingGates"


def a_group(least: int | None, timeout: int | None = None, ref: GroupRef = OURS) -> PodGroup:
    """`least` None: each for itself."""
    spec: dict[str, Any] = {"minMember": least, "scheduleTimeoutSeconds": timeout}
    kind = ObjectKind.COSCHEDULING_POD_GROUP
    if ref.api is GroupApi.SCHEDULING:
        spec = {"schedulingPolicy": {"basic": {}} if least is None else {"gang": {"minCount": least}}}
        kind = ObjectKind.POD_GROUP
    group = object_from(kind, {"metadata": {"name": ref.name}, "spec": spec})
    assert isinstance(group, PodGroup)
    return group


def an_entry(name: str, ref: GroupRef | None = OURS, priority: int = 0, seen_at: float = 0.0) -> Entry:
    labels = {GROUP_LABEL: ref.name} if ref is not None and ref.api is GroupApi.COSCHEDULING else {}
    group = {"podGroupName": ref.name} if ref is not None and ref.api is GroupApi.SCHEDULING else None
    spec = {"schedulingGroup": group, "priority": priority}
    pod = pod_from({"metadata": {"name": name, "uid": name, "labels": labels}, "spec": spec})
    return Entry(name, pod, FRAMEWORK, seen_at)


class Line:
    """As the queue uses it: pods are drawn in the order in which they became active."""

    def __init__(self) -> None:
        self.gangs = Gangs()
        self.entries: dict[str, Entry] = {}
        self.active: list[Entry] = []
        self.now = 0.0

    def add(self, *names: str, ref: GroupRef | None = OURS, shut: bool = False, priority: int = 0) -> None:
        for name in names:
            entry = self.entries[name] = an_entry(name, ref, priority, self.now)
            if shut:
                self.put(entry, Place.GATED, SHUT)
            else:
                self.queue(entry)

    def queue(self, entry: Entry, place: Place = Place.ACTIVE) -> None:
        status = self.gangs.gate(entry)
        self.put(entry, place if status.ok else Place.GATED, status.plugin)

    def put(self, entry: Entry, place: Place, gate: str = "") -> None:
        if entry in self.active:
            self.active.remove(entry)
        entry.place, entry.gate = place, gate if place is Place.GATED else None
        if place is Place.ACTIVE:
            self.active.append(entry)
        self.gangs.moved(entry, self.now)
        self.settle()

    def settle(self) -> None:
        for entry in self.gangs.released():
            self.queue(entry)
        self.gangs.validate()

    def see(self, least: int | None, timeout: int | None = None, ref: GroupRef = OURS) -> None:
        self.gangs.see(a_group(least, timeout, ref))
        self.settle()

    def take(self) -> tuple[list[str], int]:
        """The names of those who are drawn next, and how many of them are needed; 0 if there is no gang."""
        while self.active:
            first = self.active[0]
            drawn = self.gangs.draw(first)
            if isinstance(drawn, Status):
                self.put(first, Place.GATED, drawn.plugin)
                continue
            assert first in drawn.entries
            for entry in drawn.entries:
                self.put(entry, Place.IN_FLIGHT)
            return [entry.uid for entry in drawn.entries], drawn.gang.least if drawn.gang else 0
        return [], 0

    def all_taken(self) -> list[tuple[list[str], int]]:
        taken = []
        while (one := self.take())[0]:
            taken.append(one)
        return taken

    def decide(self, *names: str) -> None:
        for name in names:
            self.put(self.entries[name], Place.BINDING)

    def reject(self, *names: str, place: Place = Place.UNSCHEDULABLE) -> None:
        for name in names:
            entry = self.entries[name]
            if place in (Place.UNSCHEDULABLE, Place.GATED):
                self.put(entry, place)
            else:
                self.queue(entry, place)

    def wake(self, name: str) -> None:
        self.queue(self.entries[name])

    def bound(self, *names: str) -> None:
        for name in names:
            self.gangs.on_node(name, OURS)
            self.put(self.entries.pop(name), Place.DONE)

    def delete(self, *names: str) -> None:
        for name in names:
            self.gangs.gone(name)
            if name in self.entries:
                self.put(self.entries.pop(name), Place.DONE)
        self.settle()

    def held(self) -> list[str]:
        return [entry.uid for entry in self.entries.values() if entry.gate in HOLDERS]
