"""Get, list and watch.

All pages of a list show the state of its first page. That state is held for five minutes, for a limited number of
lists; then the continue token is expired, as on a real server after compaction.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import NamedTuple

from testing.simulator.cluster import SimulatedCluster
from testing.simulator.errors import (
    ApiError,
    bad_request,
    expired,
    forbidden_value,
    invalid_options,
    method_not_allowed,
    too_large_resource_version,
    unsupported_value,
)
from testing.simulator.requests import Request, Response, Target
from testing.simulator.resources import ApiResource, Object
from testing.simulator.selectors import select
from testing.simulator.store import Bucket, Item, encode
from testing.simulator.subresources import scale_of
from testing.simulator.views import DecodedView, PrintedTable, View
from testing.simulator.watch import Watch

LOG = b"the simulator runs no containers\n"
MAX_HELD_LISTS = 64
HELD_LIST_TTL = 300.0
EXPIRED = (
    "The provided continue parameter is too old to display a consistent list result. You must start a new list without "
    "the continue parameter."
)
MATCHES = ("Exact", "NotOlderThan")
MATCH = "resourceVersionMatch"
INITIAL = "sendInitialEvents"


class ObjectReader:
    def __init__(self, cluster: SimulatedCluster, max_pending_bytes: int) -> None:
        self.pages = Pages()
        self._cluster = cluster
        self._max_pending_bytes = max_pending_bytes

    def get(self, target: Target, request: Request) -> Response:
        item = self._cluster.find(target.resource, target.scope, target.name)
        match target.subresource:
            case "" | "status":
                return Response(200, self._view(target.resource, request).show(item))
            case "scale":
                return Response(200, encode(scale_of(item)))
            case "log":
                return Response(200, LOG, "text/plain")
        raise method_not_allowed()

    def _view(self, resource: ApiResource, request: Request) -> View:
        if "as=Table" in request.accept and "v=v1;" in f"{request.accept};".replace(",", ";"):
            return PrintedTable(resource, request.query.get("includeObject", ""), self._cluster.clock)
        return DecodedView(resource) if resource.stored_as else View(resource)

    def list_objects(self, target: Target, request: Request) -> Response:
        resource = target.resource
        if resource.virtual:
            raise method_not_allowed()
        selection = select(resource, target.namespace, request.query)
        check_list(request.query)
        limit = request.number("limit") or 0
        now = self._cluster.clock()
        if token := request.query.get("continue"):
            page = self.pages.next(token, limit, now)
        else:
            items, version = self._state(target, request)
            if selection.fields or selection.labels:
                items = [item for item in items if selection.matches(item)]
            paged = limit and request.query.get("resourceVersion") != "0"
            page = self.pages.first(items, version, limit if paged else len(items), now)
        metadata: Object = {"resourceVersion": str(page.version)}
        if page.token:
            metadata["continue"] = page.token
            if not selection.fields and not selection.labels:
                metadata["remainingItemCount"] = page.remaining
        return Response(200, self._view(resource, request).listing(page.items, metadata))

    def _state(self, target: Target, request: Request) -> tuple[list[Item], int]:
        """The objects and the version they are of: the requested past version, or the current one."""
        store = self._cluster.store
        bucket = store.bucket(target.resource)
        if request.as_of is not None:
            return _past(bucket, request.as_of, target.namespace), request.as_of
        asked = self._version(request) or 0
        if asked > store.version:
            raise too_large_resource_version(asked, store.version)
        if request.query.get("resourceVersionMatch") != "Exact":
            return bucket.in_order(target.namespace), store.version
        then = bucket.at(asked, target.namespace)
        if then is None:
            raise expired("The resourceVersion for the provided list is too old.")
        return then, asked

    def _version(self, request: Request) -> int | None:
        text = request.query.get("resourceVersion")
        if not text:
            return None
        if not text.isdecimal():
            raise bad_request(f'invalid resource version "{text}": strconv.ParseUint: parsing "{text}": invalid syntax')
        return int(text)

    def watch(self, target: Target, request: Request) -> Watch:
        resource, store = target.resource, self._cluster.store
        if resource.virtual:
            raise method_not_allowed()
        selection = select(resource, target.namespace, request.query, target.name or None)
        version = self._version(request)
        check_watch(request.query)
        bucket = store.bucket(resource)
        watch = Watch(bucket, resource, selection, self._view(resource, request), self._max_pending_bytes)
        initial = request.flag(INITIAL)
        if request.as_of is not None:
            past = _past(bucket, request.as_of, target.namespace)
            missed = bucket.since(request.as_of) or ()
            watch.start(past if initial else (), missed, request.as_of if initial else None)
        elif initial:
            if version is not None and version > store.version:
                raise too_large_resource_version(version, store.version)
            end = store.version if request.flag("allowWatchBookmarks") else None
            watch.start(bucket.in_order(target.namespace), initial_end=end)
        elif version:
            watch.resume(version, store.version)
        elif INITIAL in request.query:
            watch.start()
        else:
            watch.start(bucket.in_order(target.namespace))
        return watch


def _past(bucket: Bucket, version: int, namespace: str | None) -> list[Item]:
    then = bucket.at(version, namespace)
    if then is None:
        raise expired(f"The state of version {version} is compacted.")
    return then


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
