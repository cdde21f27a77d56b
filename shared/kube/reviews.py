"""Who calls this process's endpoints, and whether they may: decided by the API server, as for kube-scheduler's secure
port.

A TokenReview identifies the user of a bearer token, a SubjectAccessReview authorizes a path. Answers are cached for TTL
seconds; errors are neither cached nor allowed.
"""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Any

import msgspec

from shared.bounded import BoundedDict
from shared.errors import ClusterError
from shared.kube.errors import Refused, one_line

if TYPE_CHECKING:
    from shared.kube.client import KubeClient

TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
TTL = 10.0
"""Seconds for which an answer is cached."""
MAX_CACHED = 1024
"""Cached answers."""
MAX_AT_ONCE = 4
"""Reviews at the same time."""
MAX_WAITING = 64
"""Reviews that may be pending; a further one is refused."""
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
    """`connect` is called for the first review."""

    def __init__(
        self, connect: "Callable[[], Awaitable[KubeClient]]", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._connect = connect
        self._clock = clock
        self._client: KubeClient | None = None
        self._connecting = asyncio.Lock()
        self._slots = asyncio.Semaphore(MAX_AT_ONCE)
        self._cache: BoundedDict[Hashable, tuple[float, Any]] = BoundedDict(MAX_CACHED)
        self._pending: dict[Hashable, asyncio.Task[Any]] = {}

    async def close(self) -> None:
        for task in self._pending.values():
            task.cancel()
        await asyncio.gather(*self._pending.values(), return_exceptions=True)
        if self._client is not None:
            await self._client.close()

    async def user_of(self, token: str) -> User | None:
        """None if the token is invalid. ClusterError or UserError if the API server cannot be asked."""
        digest = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        found: User | None = await self._cached(digest, lambda: self._ask_user(token))
        return found

    async def may(self, user: User, verb: str, path: str) -> bool:
        """Raises like `user_of`."""
        found: bool = await self._cached((user, verb, path), lambda: self._ask_access(user, verb, path))
        return found

    async def _cached(self, key: Hashable, ask: Callable[[], Awaitable[Any]]) -> Any:
        """The cached answer, or one review for all concurrent callers."""
        said = self._cache.get(key)
        if said is not None and self._clock() < said[0]:
            return said[1]
        task = self._pending.get(key)
        if task is None:
            if len(self._pending) >= MAX_WAITING:
                raise ClusterError(f"{MAX_WAITING} reviews are in progress")
            task = self._pending[key] = asyncio.create_task(self._review(key, ask))
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return await asyncio.shield(task)

    async def _review(self, key: Hashable, ask: Callable[[], Awaitable[Any]]) -> Any:
        try:
            async with self._slots:
                said = await ask()
        finally:
            del self._pending[key]
        self._cache[key] = (self._clock() + TTL, said)
        return said

    async def _ask_user(self, token: str) -> User | None:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = (await self._post(TOKEN_REVIEWS, body, _TokenReview)).status
        if not status.authenticated:
            return None
        user = status.user
        return User(user.username, user.uid, user.groups or (), tuple(sorted((user.extra or {}).items())))

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
