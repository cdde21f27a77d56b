"""Pods that wait for a change, found by the plugin whose change they wait for."""

from collections import OrderedDict
from collections.abc import Iterator

from services.queue.entry import Entry
from services.queue.waking import ChangeKind, wakes
from shared.errors import InvariantBroken


class Rejected:
    """In the order in which they came. A change costs what it wakes, not what waits."""

    def __init__(self) -> None:
        self._entries: OrderedDict[str, Entry] = OrderedDict()
        self._by_plugin: dict[str, dict[str, Entry]] = {}

    def add(self, entry: Entry) -> None:
        self._entries[entry.uid] = entry
        for plugin in _waits_on(entry):
            self._by_plugin.setdefault(plugin, {})[entry.uid] = entry

    def discard(self, entry: Entry) -> None:
        del self._entries[entry.uid]
        for plugin in _waits_on(entry):
            waiting = self._by_plugin[plugin]
            del waiting[entry.uid]
            if not waiting:
                del self._by_plugin[plugin]

    def concerned(self, kind: ChangeKind) -> list[Entry]:
        """Whoever may be helped by such a change."""
        found: dict[str, Entry] = {}
        for plugin, waiting in self._by_plugin.items():
            if wakes(plugin, kind):
                found |= waiting
        return list(found.values())

    def first(self) -> Entry | None:
        return next(iter(self._entries.values()), None)

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def validate(self) -> None:
        indexed = {(plugin, uid) for plugin, waiting in self._by_plugin.items() for uid in waiting}
        due = {(plugin, entry.uid) for entry in self for plugin in _waits_on(entry)}
        if indexed != due:
            raise InvariantBroken(f"rejected pods are not found by their plugins: {sorted(indexed ^ due)}")


def _waits_on(entry: Entry) -> tuple[str, ...]:
    """A gated pod is looked at only for the plugin that gates it."""
    return entry.plugins if entry.gate is None else (entry.gate,)
