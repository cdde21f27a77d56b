"""Pods that wait for something to happen, found by the plugin that waits for it and grouped with those like them."""

from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

from services.queue.happenings import Happening
from services.queue.preempting import PREEMPTION
from services.queue.scheduling.queued_pod_info import Entry
from services.queue.scheduling.queueing_hints import Hints, Worth
from services.queue.standing import HOLDERS
from shared.errors import InvariantBroken
from shared.framework.clusterevents import EVERYTHING


class _Alike(NamedTuple):
    """What pods have in common that the same happenings move."""

    profile: str
    likeness: bytes
    plugins: tuple[str, ...]
    pending: tuple[str, ...]
    gate: str | None


class _Group:
    def __init__(self, key: _Alike, first: Entry) -> None:
        self.key = key
        self.framework = first.framework
        self.waits_on = _waits_on(first)
        self.priority = first.pod.priority
        self.entries: dict[str, Entry] = {}


class Rejected:
    """In the order in which they came. What happens costs by kinds of pods that may be moved, not by what waits."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._groups: dict[_Alike, _Group] = {}
        self._by_plugin: dict[tuple[str, str], dict[_Alike, _Group]] = {}

    def add(self, entry: Entry) -> None:
        key = _alike(entry)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _Group(key, entry)
            for plugin in group.waits_on:
                self._by_plugin.setdefault((key.profile, plugin), {})[key] = group
        entry.group = group
        group.entries[entry.uid] = entry
        self._entries[entry.uid] = entry

    def discard(self, entry: Entry) -> None:
        group: _Group = entry.group
        entry.group = None
        del self._entries[entry.uid]
        del group.entries[entry.uid]
        if group.entries:
            return
        del self._groups[group.key]
        for plugin in group.waits_on:
            waiting = self._by_plugin[group.key.profile, plugin]
            del waiting[group.key]
            if not waiting:
                del self._by_plugin[group.key.profile, plugin]

    def woken(self, happening: Happening, hints: Hints) -> list[tuple[Entry, Worth]]:
        """Whoever may be helped by it, and how much that is worth."""
        found: list[tuple[Entry, Worth]] = []
        for group in self._concerned(happening, hints):
            if happening.at_most is not None and group.priority > happening.at_most:
                continue
            entries = group.entries
            itself = entries.get(happening.about)
            if itself is not None:
                entries = {uid: entry for uid, entry in entries.items() if entry is not itself}
                if itself.uid != happening.but and (worth := hints.worth(itself, happening)):
                    found.append((itself, worth))
            one = next(iter(entries.values()), None)
            if one is not None and (worth := hints.worth(one, happening)):
                found += [(entry, worth) for uid, entry in entries.items() if uid != happening.but]
        return found

    def _concerned(self, happening: Happening, hints: Hints) -> list[_Group]:
        if happening.event == EVERYTHING:
            return list(self._groups.values())
        found: dict[_Alike, _Group] = {}
        for (_, plugin), groups in self._by_plugin.items():
            framework = next(iter(groups.values())).framework
            if hints.hears(framework, plugin, happening.event):
                found |= groups
        return list(found.values())

    def first(self) -> Entry | None:
        return next(iter(self._entries.values()), None)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def validate(self) -> None:
        for entry in self:
            group: _Group = entry.group
            if group.key != _alike(entry) or group.entries.get(entry.uid) is not entry:
                raise InvariantBroken(f"pod {entry.pod.key} waits with others than those like it: {entry.told()}")
            if self._groups.get(group.key) is not group:
                raise InvariantBroken(f"pod {entry.pod.key} waits where nobody looks: {entry.told()}")
        if sum(len(group.entries) for group in self._groups.values()) != len(self):
            raise InvariantBroken("pods wait in groups that are not waiting")
        indexed = {(at, key) for at, groups in self._by_plugin.items() for key in groups}
        due = {((key.profile, plugin), key) for key, group in self._groups.items() for plugin in group.waits_on}
        if indexed != due:
            raise InvariantBroken(f"rejected pods are not found by their plugins: {[at for at, _ in indexed ^ due]}")


def _waits_on(entry: Entry) -> tuple[str, ...]:
    """Who is held for its gang, or until its victims are told to go, waits for nothing else that happens."""
    if entry.gate is None:
        return entry.rejectors
    return () if entry.gate in HOLDERS or entry.gate == PREEMPTION else (entry.gate,)


def _alike(entry: Entry) -> _Alike:
    return _Alike(entry.framework.name, entry.likeness, entry.plugins, entry.pending, entry.gate)
