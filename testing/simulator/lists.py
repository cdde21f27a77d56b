"""Pages of lists, and which options of lists and watches go together.

All pages of a list show the state of its first page. That state is held for five minutes, for a limited number of
lists; then the continue token is expired, as on a real server after compaction.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import NamedTuple

from testing.simulator.errors import (
    ApiError,
    bad_request,
    expired,
    forbidden_value,
    invalid_options,
    unsupported_value,
)
from testing.simulator.store import Item

MAX_HELD_LISTS = 64
HELD_LIST_TTL = 300.0
EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You must start a new list without "
    "the continue parameter."
)
MATCHES = ("Exact", "NotOlderThan")
MATCH = "resourceVersionMatch"
INITIAL = "sendInitialEvents"


class ListPage(NamedTuple):
    items: list[Item]
    version: int
    token: str
    remaining: int


class Pages:
    def __init__(self) -> None:
        self._held: dict[int, tuple[list[Item], int, float]] = {}
        """Items, version and expiry of each list that has further pages, oldest first."""
        self._last_id = 0

    def first(self, items: list[Item], version: int, limit: int, now: float) -> ListPage:
        if len(items) <= limit:
            return ListPage(items, version, "", 0)
        self._last_id += 1
        self._held[self._last_id] = items, version, now + HELD_LIST_TTL
        self._forget(now)
        return self._page(self._last_id, 0, limit)

    def next(self, token: str, limit: int, now: float) -> ListPage:
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

    def _page(self, number: int, start: int, limit: int) -> ListPage:
        items, version, _ = self._held[number]
        end = min(start + limit, len(items)) if limit else len(items)
        token = urlsafe_b64encode(f"{number}:{end}".encode()).decode() if end < len(items) else ""
        return ListPage(items[start:end], version, token, len(items) - end)

    def _forget(self, now: float) -> None:
        """Expired lists, and the oldest ones when there are too many."""
        for number, (_, _, until) in list(self._held.items()):
            if len(self._held) <= MAX_HELD_LISTS and until > now:
                return
            del self._held[number]


def check_list(query: Mapping[str, str]) -> None:
    match, version, following = query.get(MATCH), query.get("resourceVersion"), query.get("continue")
    if INITIAL in query:
        raise invalid_options(forbidden_value(INITIAL, f"{INITIAL} is forbidden for list"))
    if match and not version:
        raise _match_forbidden("is forbidden unless resourceVersion is provided")
    if match and following:
        raise _match_forbidden("is forbidden when continue is provided")
    if match and match not in MATCHES:
        raise invalid_options(unsupported_value(MATCH, match, MATCHES))
    if match == "Exact" and version == "0":
        raise _match_forbidden('"exact" is forbidden for resourceVersion "0"')
    if following and version not in (None, "", "0"):
        raise bad_request("specifying resource version is not allowed when using continue")


def check_watch(query: Mapping[str, str]) -> None:
    """sendInitialEvents requires resourceVersionMatch NotOlderThan, and vice versa."""
    if INITIAL not in query and query.get(MATCH):
        raise _match_forbidden(f"is forbidden for watch unless {INITIAL} is provided")
    if INITIAL in query and query.get(MATCH) != "NotOlderThan":
        why = f"{INITIAL} requires setting {MATCH} to NotOlderThan"
        raise invalid_options(forbidden_value(MATCH, why))


def _match_forbidden(why: str) -> ApiError:
    return invalid_options(forbidden_value(MATCH, f"{MATCH} {why}"))
