"""A client of the API server.

    client = await KubeClient.open(settings.api)
    result = await client.execute(ApiCall("POST", path, body))
    await client.close()

Nothing is asked twice unless it cannot do harm: reads after any failure, and anything that the server certainly has not
done (429 after the time it names, 401 once with newer credentials).
"""

import asyncio
import socket
from collections.abc import Callable
from typing import Self

import aiohttp
import msgspec
from multidict import CIMultiDict
from yarl import URL

from shared.config.settings import ApiSettings
from shared.errors import InvalidObject, UserError
from shared.framework.plugin import ApiCall
from shared.kube.access import Access, find_access
from shared.kube.callmetrics import CallMetrics
from shared.kube.errors import Forbidden, Gone, Refused, Unauthorized, Unreachable
from shared.kube.notes import (
    Condition,
    PodEvent,
    PodRef,
    PodStanding,
    delete_body,
    event_body,
    event_path,
    standing,
    status_body,
    unnominated_body,
)
from shared.kube.outcome import Answer, Outcome, Result, result_of
from shared.model.objects import Pod, decode_pod, encode_json
from shared.telemetry import Telemetry

JSON = "application/json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"

CALL_PATIENCE = 10.0
"""Seconds that a call may take, retries included, unless the caller says otherwise."""
CONNECT_PATIENCE = 5.0
MOST_CONNECTIONS = 100
MOST_RETRIES = 3
FIRST_RETRY_AFTER = 0.1
"""Seconds until the first retry of a read; twice as long each time."""
LONGEST_WAIT = 5.0
"""Of a longer Retry-After the caller hears at once."""
READ_BUFFER = 1 << 20

_REFUSALS: dict[int, type[Refused]] = {401: Unauthorized, 403: Forbidden, 410: Gone}


class KubeClient:
    """One for a process; calls may be made at the same time."""

    def __init__(self, access: Access, telemetry: Telemetry | None = None) -> None:
        self.server = access.server
        self._access = access
        self._calls = None if telemetry is None else CallMetrics(telemetry.metrics)
        self._headers: dict[str, CIMultiDict[str]] = {}
        self._headers_of: str | None = None
        connector = aiohttp.TCPConnector(
            limit=MOST_CONNECTIONS, ssl=True if access.tls is None else access.tls, socket_factory=_keeping_alive
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            # Compression costs the server more than the network saves.
            headers={"Accept": JSON, "Accept-Encoding": "identity", "User-Agent": "flotilla"},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_PATIENCE),
            read_bufsize=READ_BUFFER,
        )

    @classmethod
    async def open(cls, settings: ApiSettings, telemetry: Telemetry | None = None) -> Self:
        """Reads the credentials; connects with the first call. UserError names the file or setting that is wrong."""
        return cls(await find_access(settings), telemetry)

    async def close(self) -> None:
        await self._access.close()
        await self._session.close()

    # Calls

    async def call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        timeout: float = CALL_PATIENCE,
    ) -> Answer:
        """The server's answer, whatever its status, but Unauthorized (401), Forbidden (403) and Unreachable are raised.

        `path` may hold a query; it is sent as it is.
        """
        url = self._url(path)
        loop = asyncio.get_running_loop()
        began = loop.time()
        status = 0
        try:
            async with asyncio.timeout(timeout):
                answer = await self._patiently(method, url, path, body, content_type)
        except TimeoutError as cause:
            reason = f"no answer within {timeout:g} s"
            raise Unreachable(self.server, _asked(method, path), reason, maybe_done=True) from cause
        else:
            status = answer.status
        finally:
            if self._calls is not None:
                self._calls.count(method, status, loop.time() - began)
        if status == 401 or status == 403:
            raise self._refused(method, path, answer)
        return answer

    async def execute(self, call: ApiCall) -> Result:
        """Makes a plugin's call; what became of it is in the result, and no ClusterError is raised."""
        return await self.attempt(call.method, call.path, encode_json(call.body))

    async def get_pod(self, namespace: str, name: str) -> Pod | None:
        """None if there is none. Raises ClusterError if the server does not say, InvalidObject if it cannot be read."""
        answer = await self.get(_pod_path(namespace, name))
        return None if answer is None else decode_pod(answer)

    async def pod_standing(self, namespace: str, name: str) -> PodStanding | None:
        """As `get_pod`, of the little that says where the pod is and whether it is about to go."""
        answer = await self.get(_pod_path(namespace, name))
        try:
            return None if answer is None else standing(answer)
        except msgspec.DecodeError as cause:
            raise InvalidObject("Pod", f"{namespace}/{name}", "", str(cause)) from cause

    async def create_event(self, event: PodEvent) -> Result:
        return await self.attempt("POST", event_path(event.pod.namespace), event_body(event))

    async def patch_pod_condition(
        self, pod: PodRef, condition: Condition | None, nominated: str | None = None
    ) -> Result:
        """Also who the pod is nominated to, where that is said: empty for nobody."""
        body = status_body(pod.uid, condition, nominated)
        return await self.attempt("PATCH", _status_path(pod), body, content_type=STRATEGIC_MERGE_PATCH)

    async def clear_nomination(self, pod: PodRef, node: str) -> Result:
        """Takes the nomination to this node out of the pod's status; 422 where there is another one, or none."""
        return await self.attempt("PATCH", _status_path(pod), unnominated_body(pod.uid, node), content_type=JSON_PATCH)

    async def delete_pod(self, pod: PodRef) -> Result:
        """Asks for its deletion, with the grace that its spec names."""
        return await self.attempt("DELETE", _pod_path(pod.namespace, pod.name), delete_body(pod.uid))

    async def attempt(self, method: str, path: str, body: bytes | None = None, *, content_type: str = JSON) -> Result:
        """As `call`, with everything that may become of it in the result."""
        try:
            return result_of(await self.call(method, path, body, content_type=content_type))
        except Unreachable as cause:
            return Result(Outcome.UNKNOWN if cause.maybe_done else Outcome.UNREACHABLE, message=str(cause))
        except Refused as cause:
            return Result(Outcome.FAILED, cause.status, cause.message)

    async def get(self, path: str) -> bytes | None:
        """The object there, None if there is none; raises ClusterError for any other answer."""
        answer = await self.call("GET", path)
        if answer.status == 404:
            return None
        if not answer.ok:
            raise self._refused("GET", path, answer)
        return answer.body

    async def stream(self, path: str, silence: float) -> "Stream":
        """An answer whose body is to be read as it comes; any other than 200 raises.

        `silence`: seconds without a byte after which reading fails.
        """
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_PATIENCE, sock_read=silence)
        try:
            response = await self._request("GET", self._url(path), None, JSON, timeout)
            if response.status == 200:
                return Stream(response, lambda cause: self._unreachable("GET", path, cause))
            answer = await _read(response)
        except (aiohttp.ClientError, OSError) as cause:
            raise self._unreachable("GET", path, cause) from cause
        if answer.status == 401:
            await self._access.refresh(refused=True)
        raise self._refused("GET", path, answer)

    # Inside

    async def _patiently(self, method: str, url: URL, path: str, body: bytes | None, content_type: str) -> Answer:
        """Repeats what may be repeated."""
        retries = 0
        fresh = False
        while True:
            wait: float | None = None
            answer: Answer | None = None
            try:
                answer = await self._once(method, url, body, content_type)
            except (aiohttp.ClientError, OSError) as cause:
                if method != "GET" or retries == MOST_RETRIES:
                    raise self._unreachable(method, path, cause) from cause
                wait = FIRST_RETRY_AFTER * 2**retries
            else:
                if answer.ok:
                    return answer
                if answer.status == 401 and not fresh:
                    fresh = True
                    if await self._access.refresh(refused=True):
                        continue
                wait = _wait_before_retry(method, answer, retries)
            if answer is not None and (wait is None or retries == MOST_RETRIES):
                return answer
            retries += 1
            await asyncio.sleep(wait or 0.0)

    async def _once(self, method: str, url: URL, body: bytes | None, content_type: str) -> Answer:
        return await _read(await self._request(method, url, body, content_type, None))

    async def _request(
        self, method: str, url: URL, body: bytes | None, content_type: str, timeout: aiohttp.ClientTimeout | None
    ) -> aiohttp.ClientResponse:
        access = self._access
        if access.is_stale():
            await access.refresh()
        if self._headers_of != access.authorization:
            self._headers.clear()
            self._headers_of = access.authorization
        headers = self._headers.get(content_type)
        if headers is None:
            headers = self._headers[content_type] = CIMultiDict({"Content-Type": content_type})
            if access.authorization is not None:
                headers["Authorization"] = access.authorization
        return await self._session.request(
            method,
            url,
            data=body,
            headers=headers,
            allow_redirects=False,
            proxy=access.proxy,
            server_hostname=access.server_hostname,
            timeout=timeout if timeout is not None else self._session.timeout,
        )

    def _url(self, path: str) -> URL:
        if not (path.startswith("/") and path.isascii() and path.isprintable()) or " " in path:
            raise UserError(f"{path!r} is not a path on an API server")
        return URL(self.server + path, encoded=True)

    def _refused(self, method: str, path: str, answer: Answer) -> Refused:
        kind = _REFUSALS.get(answer.status, Refused)
        return kind(self.server, _asked(method, path), answer.status, answer.message)

    def _unreachable(self, method: str, path: str, cause: Exception) -> Unreachable:
        maybe_done = not isinstance(cause, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
        return Unreachable(self.server, _asked(method, path), str(cause) or type(cause).__name__, maybe_done=maybe_done)


class Stream:
    """The body of an answer, as it comes."""

    def __init__(self, response: aiohttp.ClientResponse, unreachable: Callable[[Exception], Unreachable]) -> None:
        self._response = response
        self._unreachable = unreachable

    async def read(self) -> bytes:
        """All there is to read now, waiting for something; empty at the end. Raises Unreachable where it breaks off."""
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError) as cause:
            raise self._unreachable(cause) from cause

    def close(self) -> None:
        """Also ends a `read` that waits."""
        self._response.close()


def _pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def _status_path(pod: PodRef) -> str:
    return f"{_pod_path(pod.namespace, pod.name)}/status"


def _keeping_alive(address: aiohttp.AddrInfoType) -> socket.socket:
    """A socket that notices within a minute that the other side is not there any more, though nothing is sent."""
    made = socket.socket(*address[:3])
    made.setblocking(False)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


async def _read(response: aiohttp.ClientResponse) -> Answer:
    try:
        body = await response.read()
    finally:
        response.release()
    return Answer(response.status, body, None if response.status < 400 else _retry_after(response))


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isascii() and text.isdigit() else None


def _wait_before_retry(method: str, answer: Answer, retries: int) -> float | None:
    """Seconds after which the same may be asked again, None if it may not."""
    if answer.status == 429 or (answer.status >= 500 and method == "GET"):
        wait = answer.retry_after if answer.retry_after is not None else FIRST_RETRY_AFTER * 2**retries
        return wait if wait <= LONGEST_WAIT else None
    return None


def _asked(method: str, path: str) -> str:
    return f"{method} {path.partition('?')[0]}"
