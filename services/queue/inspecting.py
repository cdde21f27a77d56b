"""Answers those who ask what the queue holds, in pages; and tells it as lines of a log."""

from collections.abc import Callable, Iterator, Sequence

from services.queue.places import Place
from services.queue.scheduling.queued_pod_info import Entry
from services.queue.status.introspection import IN_ORDER, described
from shared.messages.inspection import MOST_PODS, DescribedPod, ListQueue, QueueListed
from shared.runtime.listings import Listings

Entries = Callable[[Place], Iterator[Entry]]
"""The pods of a place, in the order in which they leave it."""
MOST_LINES = 1000
MOST_IN_FULL = 8
"""Pods of one name that are described in full: there is more than one only while an earlier one ends."""


class Inspection:
    """Looks only, and changes nothing."""

    def __init__(
        self,
        entries: Entries,
        counts: Callable[[], dict[Place, int]],
        nominated: Callable[[], dict[str, list[str]]],
        date: Callable[[float], float] = float,
    ) -> None:
        """`nominated`: the uids of pods by the node that they are nominated to. `date` makes Unix times of times."""
        self._date = date
        self._entries = entries
        self._counts = counts
        self._nominated = nominated
        self._listings: Listings[Entry] = Listings()

    def answer(self, asked: ListQueue, now: float) -> QueueListed:
        """Its times are Unix times."""
        wall = self._date(now)
        limit = min(asked.limit, MOST_PODS)
        page = self._listings.page(asked.listing, asked.after, limit, lambda: self._drawn_up(asked), now)
        counts = {place.value: count for place, count in self._counts().items()}
        if page is None:
            return QueueListed("", wall, counts, 0, [])
        in_full = bool(asked.name) and page.total <= MOST_IN_FULL
        nodes = self._nodes()
        here = [entry for entry in page.items if entry.place is not Place.DONE]
        pods = [described(entry, nodes.get(entry.uid, ""), wall - now, in_full=in_full) for entry in here]
        return QueueListed(page.listing, wall, counts, page.total, pods, page.next)

    def expire(self, now: float) -> None:
        self._listings.expire(now)

    def lines(self, now: float) -> Iterator[str]:
        """For a log: how many pods there are where, and each of them, up to so many."""
        counts = {place: count for place, count in self._counts().items() if count}
        yield f"the queue holds {', '.join(f'{count} {place}' for place, count in counts.items()) or 'nothing'}"
        nodes, told = self._nodes(), 0
        for place in IN_ORDER:
            for entry in self._entries(place):
                if told == MOST_LINES:
                    yield f"and {sum(counts.values()) - told} more pods: flotilla dump tells of all"
                    return
                told += 1
                yield _line(described(entry, nodes.get(entry.uid, "")), now)

    def _nodes(self) -> dict[str, str]:
        """To which each pod is nominated, by uid."""
        return {uid: node for node, uids in self._nominated().items() for uid in uids}

    def _drawn_up(self, asked: ListQueue) -> Sequence[Entry]:
        places = [place for place in IN_ORDER if not asked.places or place.value in asked.places]
        found = (entry for place in places for entry in self._entries(place))
        if not asked.namespace and not asked.name:
            return list(found)
        return [
            entry
            for entry in found
            if asked.namespace in ("", entry.pod.namespace) and asked.name in ("", entry.pod.name)
        ]


def _line(pod: DescribedPod, now: float) -> str:
    parts = [f"pod {pod.namespace}/{pod.name} ({pod.uid}): {pod.place} for {max(0.0, now - pod.since):.1f} s"]
    parts.append(f"tried {pod.attempts}x")
    if pod.gate:
        parts.append(f"gate {pod.gate}")
    if rejecting := [plugin for plugin in pod.plugins if plugin != pod.gate]:
        parts.append(f"rejected by {', '.join(rejecting)}")
    if pod.nominated:
        parts.append(f"nominated to {pod.nominated}")
    return ", ".join(parts)
