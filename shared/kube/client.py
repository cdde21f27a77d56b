"""A client of the API server.

    client = await KubeClient.open(settings.api)
    result = await client.execute(ApiCall("POST", path, body))
    await client.close()

Calls are retried only if that does no harm: reads and merge patches after any failure, and every call that the server
certainly did not execute (429 after the time that it names, 401 once with newer credentials).
"""

import asyncio
from dataclasses import dataclass
from importlib.metadata import version
from typing import Self

import msgspec

from flotilla.results import ApiCall
from shared.config.settings import ApiSettings
from shared.errors import ClusterError, InvalidObject, UserError
from shared.http.client import HttpClient
from shared.http.connecting import Route
from shared.http.errors import HttpFailure, Late
from shared.http.request import Address, RequestFormat
from shared.http.response import Headers, header_of
from shared.kube.access import DEFAULT_CONNECTION, Access, ClientConnection, find_access
from shared.kube.errors import Forbidden, Gone, Refused, Unauthorized, Unreachable
from shared.kube.events_and_conditions import (
    Condition,
    ObservedPod,
    PodEvent,
    PodRef,
    clear_nomination_body,
    delete_body,
    event_body,
    event_path,
    observed_pod,
    status_body,
)
from shared.kube.outcome import (
    FIRST_RETRY_AFTER,
    ApiResponse,
    CallMetrics,
    CallOutcome,
    CallResult,
    TokenBucket,
    jittered,
    result_of,
    retry_after,
    wait_before_retry,
)
from shared.kube.wire import Stream, StreamedBody
from shared.model.objects import encode_json
from shared.telemetry import Telemetry

JSON = "application/json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"

CALL_PATIENCE = 10.0
"""Seconds for a call, retries included, unless the caller sets another limit."""
CONNECT_PATIENCE = 5.0
"""Seconds for connecting."""
MAX_CONNECTIONS = 128
"""Connections of one process."""
MAX_RETRIES = 3
"""Retries of one call."""
MAX_REFUSAL = 1 << 20
"""Bytes that are read of an answer that refuses a stream."""
NOT_LIMITED = "/apis/coordination.k8s.io/"
"""Lease renewals are not rate limited: a late one loses the Lease."""

_REFUSALS: dict[int, type[Refused]] = {401: Unauthorized, 403: Forbidden, 410: Gone}


@dataclass(slots=True)
class _CallState:
    """A call's deadline, and whether the server may already have executed it."""

    deadline: float
    maybe_done: bool = False


class KubeClient:
    """One per process; supports concurrent calls."""

    def __init__(
        self,
        access: Access,
        telemetry: Telemetry | None = None,
        bucket: TokenBucket | None = None,
        agent: str = "",
    ) -> None:
        self.server = access.server
        self._access = access
        self._bucket = bucket
        self._calls = None if telemetry is None else CallMetrics(telemetry.metrics)
        self._heads: dict[str, bytes] = {}
        """Headers as bytes, by the content type."""
        self._heads_of = access.generation
        server = Address.of(access.server)
        proxy = None if access.proxy is None else Address.of(access.proxy)
        # compression costs the server more than the network saves
        fields = {"Accept": JSON, "Accept-Encoding": "identity", "User-Agent": agent or _agent(telemetry)}
        self._format = RequestFormat(server, proxy, fields)
        route = Route(server, access.server_hostname, proxy)
        self._http = HttpClient(route, access.tls, most=MAX_CONNECTIONS, connect_patience=CONNECT_PATIENCE)
        self._answer_headers: Headers = []

    @property
    def date(self) -> str | None:
        """The Date header of the last answer."""
        return header_of(self._answer_headers, b"date")

    @classmethod
    async def open(
        cls,
        settings: ApiSettings,
        telemetry: Telemetry | None = None,
        given: ClientConnection = DEFAULT_CONNECTION,
        agent: str = "",
    ) -> Self:
        """Reads the credentials; the first call connects. UserError names the file or setting that is wrong.

        `given`: the configuration file's clientConnection. `agent`: our name in the server's log and flow control; by
        default the telemetry's service.
        """
        return cls(await find_access(settings, given.kubeconfig), telemetry, given.bucket(), agent)

    async def close(self) -> None:
        await self._access.close()
        await self._http.close()

    # Calls

    async def call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        timeout: float = CALL_PATIENCE,
    ) -> ApiResponse:
        """The server's answer with any status, except that 401, 403 and no answer raise Unauthorized, Forbidden
        and Unreachable.

        `path` may include an encoded query.
        """
        _check(path)
        loop = asyncio.get_running_loop()
        began = loop.time()
        status = 0
        state = _CallState(began + timeout)
        try:
            answer = await self._with_retries(method, path, body, content_type, state)
            status = answer.status
        except (Late, TimeoutError) as cause:
            reason = f"no answer within {timeout:g} s"
            raise Unreachable(self.server, _asked(method, path), reason, maybe_done=state.maybe_done) from cause
        finally:
            if self._calls is not None:
                self._calls.count(method, status, loop.time() - began)
        if status == 401 or status == 403:
            raise self._refused(method, path, answer)
        return answer

    async def execute(self, call: ApiCall, timeout: float = CALL_PATIENCE) -> CallResult:
        """Make a plugin's call; the result says what became of it, and no ClusterError is raised."""
        return await self.try_call(call.method, call.path, encode_json(call.body), timeout=timeout)

    async def observe_pod(self, namespace: str, name: str) -> ObservedPod | None:
        """The pod as the API server has it; None if there is none.

        Raises ClusterError without an answer, InvalidObject if it cannot be read.
        """
        answer = await self.get(_pod_path(namespace, name))
        return None if answer is None else _observed(answer, namespace, name)

    async def create_event(self, event: PodEvent) -> CallResult:
        return await self.try_call("POST", event_path(event.pod.event_namespace), event_body(event))

    async def patch_pod_condition(
        self, pod: PodRef, condition: Condition | None, nominated: str | None = None, version: str = ""
    ) -> CallResult:
        """Write a condition, and the nominated node if given; empty for none.

        With `version`, CONFLICT if the pod has changed since.
        """
        body = status_body(pod.uid, condition, nominated, version)
        return await self.try_call("PATCH", _status_path(pod), body, content_type=STRATEGIC_MERGE_PATCH)

    async def patch_and_observe(self, pod: PodRef, condition: Condition) -> ObservedPod | None:
        """Write the condition and return the pod as the server answers it; None if there is no such pod.

        Raises ClusterError for every other answer, also if the pod has another uid, and without an answer.
        """
        return await self._patch_status(pod, status_body(pod.uid, condition))

    async def nominate(self, pod: PodRef, node: str, version: str) -> ObservedPod:
        """Write the nominated node, if the pod has this version; raises ClusterError for every other answer."""
        patched = await self._patch_status(pod, status_body(pod.uid, None, node, version))
        if patched is None:
            raise ClusterError(f"Pod {pod.namespace}/{pod.name}: there is no such pod")
        return patched

    async def _patch_status(self, pod: PodRef, body: bytes) -> ObservedPod | None:
        path = _status_path(pod)
        answer = await self.call("PATCH", path, body, content_type=STRATEGIC_MERGE_PATCH)
        if answer.status == 404:
            return None
        if not answer.ok:
            raise self._refused("PATCH", path, answer)
        return _observed(answer.body, pod.namespace, pod.name)

    async def clear_nomination(self, pod: PodRef, node: str) -> CallResult:
        """Remove the nomination to this node from the pod's status; 422 if it has another one, or none."""
        return await self.try_call(
            "PATCH", _status_path(pod), clear_nomination_body(pod.uid, node), content_type=JSON_PATCH
        )

    async def delete_pod(self, pod: PodRef, version: str) -> CallResult:
        """Delete the pod with the grace period of its spec; CONFLICT if it has changed since this version."""
        return await self.try_call("DELETE", _pod_path(pod.namespace, pod.name), delete_body(pod.uid, version))

    async def try_call(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON,
        timeout: float = CALL_PATIENCE,
    ) -> CallResult:
        """Like `call`, with every outcome in the result."""
        try:
            return result_of(await self.call(method, path, body, content_type=content_type, timeout=timeout))
        except Unreachable as cause:
            return CallResult(CallOutcome.UNKNOWN if cause.maybe_done else CallOutcome.UNREACHABLE, message=str(cause))
        except Refused as cause:
            return CallResult(CallOutcome.FAILED, cause.status, cause.message)

    async def get(self, path: str) -> bytes | None:
        """The object, None if there is none; ClusterError for any other answer."""
        answer = await self.call("GET", path)
        if answer.status == 404:
            return None
        if not answer.ok:
            raise self._refused("GET", path, answer)
        return answer.body

    async def stream(self, path: str, patience: float) -> Stream:
        """An answer whose body is read as it comes; a status other than 200 raises.

        `patience`: seconds until the answer begins, and without a byte while it is read.
        """
        _check(path)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + patience
        fresh = False
        while True:
            generation = self._access.generation
            began, status = loop.time(), 0
            try:
                body = await self._open(path, deadline)
                status = body.status
                if status == 200:
                    return Stream(body, self.server, _asked("GET", path), patience)
                wait = retry_after(body.header(b"retry-after"))
                answer = ApiResponse(status, await _rest(body, deadline), wait)
            except (HttpFailure, TimeoutError) as cause:
                late = isinstance(cause, Late | TimeoutError)
                reason = f"no answer within {patience:g} s" if late else str(cause)
                maybe_done = isinstance(cause, HttpFailure) and cause.maybe_received
                raise Unreachable(self.server, _asked("GET", path), reason, maybe_done=maybe_done) from cause
            finally:
                if self._calls is not None:
                    self._calls.count("GET", status, loop.time() - began)
            if answer.status == 401 and not fresh:
                fresh = True
                if await self._access.refresh(refused=True, generation=generation):
                    continue
            raise self._refused("GET", path, answer)

    # Internals

    async def _with_retries(
        self, method: str, path: str, body: bytes | None, content_type: str, state: _CallState
    ) -> ApiResponse:
        """Retry what may be retried, as long as the deadline allows."""
        loop = asyncio.get_running_loop()
        repeatable = method == "GET" or (method == "PATCH" and content_type == STRATEGIC_MERGE_PATCH)
        retries = 0
        fresh = False
        while True:
            wait: float | None
            if self._bucket is not None:
                await self._await_rate_limit(self._bucket, method, path, state)
            generation = self._access.generation
            try:
                answer = await self._once(method, path, body, content_type, state.deadline)
            except HttpFailure as cause:
                state.maybe_done |= cause.maybe_received
                if isinstance(cause, Late):
                    raise
                wait = jittered(FIRST_RETRY_AFTER * 2**retries)
                if not repeatable or retries == MAX_RETRIES or loop.time() + wait >= state.deadline:
                    asked = _asked(method, path)
                    raise Unreachable(self.server, asked, str(cause), maybe_done=state.maybe_done) from cause
            else:
                if answer.ok:
                    return answer
                state.maybe_done |= answer.status >= 500
                if answer.status == 401 and not fresh:
                    fresh = True
                    async with asyncio.timeout_at(state.deadline):
                        changed = await self._access.refresh(refused=True, generation=generation)
                    if changed:
                        continue
                wait = wait_before_retry(repeatable, answer, retries)
                if wait is None or retries == MAX_RETRIES or loop.time() + wait >= state.deadline:
                    return answer
            retries += 1
            await asyncio.sleep(wait)

    async def _await_rate_limit(self, bucket: TokenBucket, method: str, path: str, state: _CallState) -> None:
        """Wait for the rate limit; fail at once if the call could not be sent in time."""
        if path.startswith(NOT_LIMITED):
            return
        now = asyncio.get_running_loop().time()
        at = bucket.take(now, state.deadline)
        if at is None:
            reason = f"not sent: at {bucket.rate:g} calls a second, too many calls wait for it to be sent in time"
            raise Unreachable(self.server, _asked(method, path), reason, maybe_done=state.maybe_done)
        if at > now:
            try:
                await asyncio.sleep(at - now)
            except asyncio.CancelledError:
                bucket.give_back()
                raise

    async def _once(
        self, method: str, path: str, body: bytes | None, content_type: str, deadline: float
    ) -> ApiResponse:
        """Raises HttpFailure, or TimeoutError before the call is sent."""
        if self._access.is_stale():
            await self._freshen(deadline)
        request = self._format.request(method, path, self._head(content_type), body)
        # Whether a PUT or DELETE without an answer was executed, the answer to a second one would not say.
        answer = await self._http.request(request, deadline, repeatable=method == "GET")
        self._answer_headers = answer.headers
        wait = None if answer.status < 400 else retry_after(answer.header(b"retry-after"))
        return ApiResponse(answer.status, answer.body, wait)

    async def _open(self, path: str, deadline: float) -> StreamedBody:
        if self._access.is_stale():
            await self._freshen(deadline)
        return await self._http.open(self._format.request("GET", path, self._head(JSON), None), deadline)

    async def _freshen(self, deadline: float) -> None:
        async with asyncio.timeout_at(deadline):
            await self._access.freshen()

    def _head(self, content_type: str) -> bytes:
        """The headers with the present credentials; new connections use their certificate."""
        access = self._access
        if self._heads_of != access.generation:
            self._http.use(access.tls)
            self._heads.clear()
            self._heads_of = access.generation
        head = self._heads.get(content_type)
        if head is None:
            fields = {"Content-Type": content_type}
            if access.authorization is not None:
                fields["Authorization"] = access.authorization
            head = self._heads[content_type] = self._format.head(fields)
        return head

    def _refused(self, method: str, path: str, answer: ApiResponse) -> Refused:
        kind = _REFUSALS.get(answer.status, Refused)
        return kind(self.server, _asked(method, path), answer.status, answer.message, answer.retry_after)


def _pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{namespace}/pods/{name}"


def _observed(raw: bytes, namespace: str, name: str) -> ObservedPod:
    try:
        return observed_pod(raw)
    except msgspec.DecodeError as cause:
        raise InvalidObject("Pod", f"{namespace}/{name}", "", str(cause)) from cause


def _status_path(pod: PodRef) -> str:
    return f"{_pod_path(pod.namespace, pod.name)}/status"


def _check(path: str) -> None:
    if not (path.startswith("/") and path.isascii() and path.isprintable()) or " " in path:
        raise UserError(f"{path!r} is not a path on an API server")


async def _rest(body: StreamedBody, deadline: float) -> bytes:
    """The rest of a refusal; its beginning says enough."""
    loop, parts, size = asyncio.get_running_loop(), [], 0
    try:
        while size < MAX_REFUSAL and (data := await body.read(deadline - loop.time())):
            parts.append(data)
            size += len(data)
    finally:
        body.close()
    return b"".join(parts)


def _agent(telemetry: Telemetry | None) -> str:
    """For example `flotilla-binder/0.1.0`."""
    name = "flotilla" if telemetry is None else telemetry.log.name.replace(".", "-")
    return f"{name}/{version('flotilla')}"


def _asked(method: str, path: str) -> str:
    return f"{method} {path.partition('?')[0]}"
