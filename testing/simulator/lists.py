"""Lists in pages: every page of a list shows the state that its first page showed.

The state is held for the pages to come, for a while and for a bounded number of lists; then it is expired, as it is on
a real server once it has been compacted.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from dataclasses import dataclass

from testing.simulator.errors import bad_request, expired
from testing.simulator.store import Item

MOST_HELD = 64
HELD_SECONDS = 300.0
EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You must start a new list without "
    "the continue parameter."
)


@dataclass(slots=True)
class Page:
    items: list[Item]
    version: int
    token: str = ""
    remaining: int = 0


@dataclass(slots=True)
class _Held:
    items: list[Item]
    version: int
    until: float


class Pages:
    def __init__(self) -> None:
        self._held: OrderedDict[int, _Held] = OrderedDict()
        self._last_id = 0

    def first(self, items: list[Item], version: int, limit: int, now: float) -> Page:
        if len(items) <= limit:
            return Page(items, version)
        self._last_id += 1
        self._held[self._last_id] = _Held(items, version, now + HELD_SECONDS)
        self._forget(now)
        return self._page(self._last_id, 0, limit)

    def next(self, token: str, limit: int, now: float) -> Page:
        try:
            number, start = map(int, urlsafe_b64decode(token.encode()).decode().split(":"))
        except ValueError:
            raise bad_request("continue key is not valid") from None
        self._forget(now)
        if number not in self._held:
            raise expired(EXPIRED)
        return self._page(number, start, limit)

    def expire(self) -> None:
        self._held.clear()

    def _page(self, number: int, start: int, limit: int) -> Page:
        held = self._held[number]
        end = min(start + limit, len(held.items)) if limit else len(held.items)
        remaining = len(held.items) - end
        token = urlsafe_b64encode(f"{number}:{end}".encode()).decode() if remaining else ""
        return Page(held.items[start:end], held.version, token, remaining)

    def _forget(self, now: float) -> None:
        while self._held:
            oldest = next(iter(self._held))
            if len(self._held) <= MOST_HELD and self._held[oldest].until > now:
                return
            del self._held[oldest]
