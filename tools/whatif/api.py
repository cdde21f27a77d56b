"""What-if questions over HTTP: a POST with a Question as JSON gets an Answer. Nothing is changed.

A second path turns YAML into the JSON that questions consist of. The routes are for any server, which authorises
requests as it does for its other paths. One question is answered at a time, in a process of its own that ends at the
deadline.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec
from aiohttp import web

from shared.errors import FlotillaError, UserError
from shared.model.objects import Pod, encode_msgpack
from tools.live_state import LiveState
from tools.whatif.answer import Answer, Question, nodes_to_read
from tools.whatif.documents import documents
from tools.whatif.job import Job, Problem, encode

PATH = "/api/whatif"
DOCUMENTS_PATH = "/api/manifests"
OPENAPI_PATH = f"{PATH}/openapi.json"
MAX_BODY = 4 << 20
"""Bytes of a question, and of a text."""
MAX_NAME = 64
"""Characters of the name that errors give a text."""
TIMEOUT = 60.0
"""Seconds for an answer, the state included."""
JSON = "application/json"
REFS = "#/components/schemas/{name}"
HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
EXPECTED = {Question: "a question", str: "a text as JSON"}

REFUSALS = {
    "400": "what was sent is wrong, and how",
    "413": f"the body has more than {MAX_BODY} bytes",
    "415": "the body is not JSON",
    "429": "another question is being answered",
    "500": "the answer failed",
    "503": "the pipeline does not answer",
    "504": "the answer takes too long",
}

T = TypeVar("T")


class Source(Protocol):
    """Where the state comes from. Both raise FlotillaError if a pipeline does not answer."""

    async def live(self) -> LiveState: ...

    async def pods_on(self, node: str) -> Sequence[Pod]: ...


class _Refused(Exception):
    def __init__(self, status: int, why: str) -> None:
        self.status = status
        super().__init__(why)


def routes(source: Source, timeout: float = TIMEOUT) -> list[web.RouteDef]:
    api = _Api(source, timeout)
    return [
        web.post(PATH, api.ask),
        web.post(DOCUMENTS_PATH, api.read),
        web.get(OPENAPI_PATH, api.describe, allow_head=False),
    ]


class _Api:
    def __init__(self, source: Source, timeout: float) -> None:
        self._source = source
        self._timeout = timeout
        self._busy = False
        self._parsing: asyncio.Future[list[object]] | None = None
        """Of the last text; a thread cannot be stopped at the deadline."""

    async def ask(self, request: web.Request) -> web.Response:
        return await self._respond(request, Question, self._answer)

    async def read(self, request: web.Request) -> web.Response:
        """In a thread: YAML takes its time, and the server has other requests."""
        name = request.query.get("name", "")[:MAX_NAME] or "manifests"

        async def parsed(text: str) -> bytes:
            if self._parsing is not None and not self._parsing.done():
                raise _Refused(429, "a longer text is still being read; try again")
            self._parsing = asyncio.ensure_future(asyncio.to_thread(documents, name, text))
            return msgspec.json.encode(await asyncio.shield(self._parsing))

        return await self._respond(request, str, parsed)

    async def _respond(
        self, request: web.Request, kind: type[T], answer: Callable[[T], Awaitable[bytes]]
    ) -> web.Response:
        try:
            asked = await _read(request, kind)
            if self._busy:
                raise _Refused(429, "another question is being answered; try again")
            self._busy = True
            try:
                async with asyncio.timeout(self._timeout):
                    body = await answer(asked)
            finally:
                self._busy = False
        except _Refused as refused:
            return _problem(refused.status, str(refused))
        except TimeoutError:
            return _problem(504, f"the answer takes longer than {self._timeout:g} s; ask about fewer pods")
        except FlotillaError as cause:
            return _problem(400 if isinstance(cause, UserError) else 503, str(cause))
        return web.Response(body=body, content_type=JSON, headers=HEADERS)

    async def describe(self, _: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode(openapi()), content_type=JSON, headers=HEADERS)

    async def _answer(self, question: Question) -> bytes:
        live = await self._source.live()
        known = {each.node.name for each in live.state.nodes}
        names = [name for name in nodes_to_read(question) if name in known]
        pods_on = {name: [encode_msgpack(pod) for pod in await self._source.pods_on(name)] for name in names}
        told = await _in_a_process(encode(Job(live, question, pods_on)))
        if told.startswith(b'{"problem":'):
            problem = msgspec.json.decode(told, type=Problem)
            raise _Refused(400 if problem.asked else 500, problem.problem)
        return told


async def _read(request: web.Request, kind: type[T]) -> T:
    if request.content_type != JSON:
        raise _Refused(415, f"expected Content-Type: {JSON}")
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > MAX_BODY:
            raise _Refused(413, f"a body has at most {MAX_BODY} bytes")
    try:
        return msgspec.json.decode(bytes(body), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as cause:
        raise _Refused(400, f"not {EXPECTED[kind]}: {cause}") from None


async def _in_a_process(job: bytes) -> bytes:
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tools.whatif.child"), stdin=pipe, stdout=pipe, stderr=pipe
    )
    try:
        told, log = await child.communicate(job)
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    if child.returncode:
        last = log.decode(errors="replace").strip().rpartition("\n")[2]
        raise _Refused(500, f"the process that answers ended with code {child.returncode}: {last}")
    return told


def _problem(status: int, why: str) -> web.Response:
    headers = HEADERS | ({"Retry-After": "1"} if status == 429 else {})
    return web.Response(status=status, body=msgspec.json.encode({"problem": why}), content_type=JSON, headers=headers)


def openapi() -> dict[str, Any]:
    """The OpenAPI 3.1 document, whose schemas are those of the structs."""
    (question, answer), components = msgspec.json.schema_components([Question, Answer], ref_template=REFS)
    problem = {"type": "object", "properties": {"problem": {"type": "string"}}, "required": ["problem"]}
    ask = {
        "operationId": "ask",
        "summary": "Decide on the live state, and change nothing",
        "requestBody": {"required": True, "content": {JSON: {"schema": question}}},
        "responses": {"200": _response("the answer", answer)} | _refusals(*REFUSALS),
    }
    name = {"type": "string", "maxLength": MAX_NAME, "default": "manifests"}
    read = {
        "operationId": "read",
        "summary": "Parse YAML or JSON into the JSON of a question: manifests, a config, or a list of node_groups",
        "parameters": [{"name": "name", "in": "query", "description": "of the text, for errors", "schema": name}],
        "requestBody": {"required": True, "content": {JSON: {"schema": {"type": "string"}}}},
        "responses": {"200": _response("its documents, in order", {"type": "array"})}
        | _refusals(*(status for status in REFUSALS if status not in ("500", "503"))),
    }
    describe = {
        "operationId": "describe",
        "summary": "This document",
        "responses": {"200": _response("an OpenAPI document", {"type": "object"})},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Flotilla: what if", "version": "1"},
        "paths": {PATH: {"post": ask}, DOCUMENTS_PATH: {"post": read}, OPENAPI_PATH: {"get": describe}},
        "components": {"schemas": {**components, "Problem": problem}},
    }


def _response(description: str, schema: object) -> dict[str, Any]:
    return {"description": description, "content": {JSON: {"schema": schema}}}


def _refusals(*statuses: str) -> dict[str, Any]:
    return {status: _response(REFUSALS[status], {"$ref": REFS.format(name="Problem")}) for status in statuses}
