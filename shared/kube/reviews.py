"""Who asks this process, and whether they may: the API server says so, as for kube-scheduler's secure port.

A TokenReview tells whose a bearer token is, a SubjectAccessReview whether they may use a path. What is said counts for
TTL seconds. What cannot be found out is neither cached nor allowed.
"""

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Any

import msgspec

from shared.errors import ClusterError
from shared.kube.errors import Refused, one_line

if TYPE_CHECKING:
    from shared.kube.client import KubeClient

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
TTL = 10.0
MOST_CACHED = 1024
MOST_AT_ONCE = 4
MOST_WAITING = 64
PATIENCE = 5.0
"""Seconds for one review."""


class User(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] | None = None
    extra: dict[str, tuple[str, ...]] | None = None


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: _User = msgspec.field(default_factory=_User)


class _AccessStatus(msgspec.Struct):
    allowed: bool = False
    denied: bool = False


class _TokenReview(msgspec.Struct):
    status: _TokenStatus


class _AccessReview(msgspec.Struct):
    status: _AccessStatus


class Reviews:
    """`connect` is called with the first question."""

    def __init__(
        self, connect: "Callable[[], Awaitable[KubeClient]]", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._connect = connect
        self._clock = clock
        self._client: KubeClient | None = None
        self._connecting = asyncio.Lock()
        self._places = asyncio.Semaphore(MOST_AT_ONCE)
        self._known: OrderedDict[Hashable, tuple[float, Any]] = OrderedDict()
        self._asked: dict[Hashable, asyncio.Task[Any]] = {}

    async def close(self) -> None:
        for task in self._asked.values():
            task.cancel()
        await asyncio.gather(*self._asked.values(), return_exceptions=True)
        if self._client is not None:
            await self._client.close()

    async def user_of(self, token: str) -> User | None:
        """None: the token is nobody's. ClusterError or UserError where that cannot be found out."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        found: User | None = await self._remembered(digest, lambda: self._ask_user(token))
        return found

    async def may(self, user: User, verb: str, path: str) -> bool:
        """As `user_of` where it cannot be found out."""
        found: bool = await self._remembered((user, verb, path), lambda: self._ask_access(user, verb, path))
        return found

    async def _remembered(self, key: Hashable, ask: Callable[[], Awaitable[Any]]) -> Any:
        """What was said lately; else it is asked, once for all who want to know."""
        said = self._known.get(key)
        if said is not None and self._clock() < said[0]:
            return said[1]
        task = self._asked.get(key)
        if task is None:
            if len(self._asked) >= MOST_WAITING:
                raise ClusterError(f"{MOST_WAITING} reviews are under way")
            task = self._asked[key] = asyncio.create_task(self._review(key, ask))
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return await asyncio.shield(task)

    async def _review(self, key: Hashable, ask: Callable[[], Awaitable[Any]]) -> Any:
        try:
            async with self._places:
                said = await ask()
        finally:
            del self._asked[key]
        self._known.pop(key, None)
        self._known[key] = (self._clock() + TTL, said)
        if len(self._known) > MOST_CACHED:
            self._known.popitem(last=False)
        return said

    async def _ask_user(self, token: str) -> User | None:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = (await self._post(TOKEN_REVIEWS, body, _TokenReview)).status
        if not status.authenticated:
            return None
        told = status.user
        return User(told.username, told.uid, told.groups or (), tuple(sorted((told.extra or {}).items())))

    async def _ask_access(self, user: User, verb: str, path: str) -> bool:
        spec = {
            "nonResourceAttributes": {"path": path, "verb": verb},
            "user": user.username,
            "uid": user.uid,
            "groups": user.groups,
            "extra": dict(user.extra),
        }
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        status = (await self._post(ACCESS_REVIEWS, body, _AccessReview)).status
        return status.allowed and not status.denied

    async def _post(self, path: str, body: dict[str, Any], answer: type[Any]) -> Any:
        async with self._connecting:
            if self._client is None:
                self._client = await self._connect()
        found = await self._client.call("POST", path, msgspec.json.encode(body), timeout=PATIENCE)
        if not 200 <= found.status < 300:
            raise Refused(self._client.server, f"POST {path}", found.status, one_line(found.message))
        try:
            return msgspec.json.decode(found.body, type=answer)
        except (msgspec.DecodeError, ValueError) as cause:
            raise ClusterError(f"{self._client.server}: POST {path}: not a review: {cause}") from cause
