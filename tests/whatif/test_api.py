"""The HTTP API: it answers, refuses what is wrong, stays responsive, and is as its document says."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import ANY

import aiohttp
import pytest
from aiohttp import web

from shared.errors import ClusterError
from shared.model.objects import Pod
from testing.builders import pod
from tests.whatif.test_questions import a_live, a_node, a_pod
from tools.live_state import LiveState
from tools.whatif import api
from tools.whatif.answer import Answer, Question
from tools.whatif.documents import documents

pytestmark = pytest.mark.asyncio

PLACED = pod("web-1").request(cpu="1").owner("ReplicaSet", "web").on("n1")


class AState:
    """`there`: when it can be read."""

    def __init__(self, *, fails: bool = False) -> None:
        self.there = asyncio.Event()
        self.there.set()
        self.asked = asyncio.Event()
        self._fails = fails

    async def live(self) -> LiveState:
        self.asked.set()
        await self.there.wait()
        if self._fails:
            raise ClusterError("no reply from the workers")
        return a_live(a_node("n1", 2), a_node("n2", 2), pods=(PLACED,))

    async def pods_on(self, node: str) -> Sequence[Pod]:
        return [PLACED.build()] if node == "n1" else []


@asynccontextmanager
async def served(state: AState, timeout: float = 30.0) -> AsyncIterator[aiohttp.ClientSession]:
    app = web.Application()
    app.add_routes(api.routes(state, timeout))
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        async with aiohttp.ClientSession(f"http://{host}:{port}") as session:
            yield session
    finally:
        await runner.cleanup()


async def ask(session: aiohttp.ClientSession, question: object, path: str = api.PATH) -> tuple[int, Any]:
    async with session.post(path, json=question) as response:
        return response.status, await response.json()


async def test_a_question_is_answered_in_another_process() -> None:
    async with served(AState()) as session:
        status, told = await ask(session, {"manifests": [a_pod("p", "2")], "drain": ["n1"]})
        assert status == 200
        where = {each["name"]: each.get("node", each["verdict"]) for each in told["pods"]}
        assert where == {"web-1": "n2", "p": "unschedulable"}
        status, told = await ask(session, {"drain": ["n9"]})
        assert (status, told) == (400, {"problem": "drain: there is no node n9"})


async def test_node_groups_and_a_configuration_come_as_yaml() -> None:
    groups = "- {name: small, like: n1, max: 2, price: 1}\n- {name: large, like: n2, max: 2, price: 9}\n"
    config = (
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nprofiles: [{schedulerName: x}]\n"
    )
    pods = "\n---\n".join(map(json.dumps, (a_pod(f"p{i}", "2", schedulerName="x") for i in range(2))))
    async with served(AState()) as session:
        read = [await ask(session, text, api.DOCUMENTS_PATH) for text in (pods, groups, config, "")]
        assert [status for status, _ in read] == [200] * 4
        manifests, (node_groups,), (other,), nothing = (found for _, found in read)
        assert (len(manifests), len(node_groups), nothing) == (2, 2, [])
        status, told = await ask(session, {"manifests": manifests, "node_groups": node_groups, "config": other})
        assert (status, told["needed"]["counts"]) == (200, {"small": 1})
        assert sorted(each["node"] for each in told["pods"]) == ["n2", "small-1"]
        status, told = await ask(session, "a: b: c", f"{api.DOCUMENTS_PATH}?name=groups")
        assert status == 400 and told["problem"].startswith("groups: document 1: is not YAML")


async def test_what_is_no_question_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "MAX_BODY", 100)
    async with served(AState()) as session:
        status, told = await ask(session, {"nonsense": 1})
        assert status == 400 and "nonsense" in told["problem"]
        assert (await ask(session, {"like": "x" * 100}))[0] == 413
        assert (await ask(session, "x" * 100, api.DOCUMENTS_PATH))[0] == 413
        assert await ask(session, {}, api.DOCUMENTS_PATH) == (400, ANY)
        async with session.post(api.PATH, data=b"{}") as response:
            assert response.status == 415
    async with served(AState(fails=True)) as session:
        assert await ask(session, {}) == (503, {"problem": "no reply from the workers"})


async def test_one_question_at_a_time_with_a_deadline() -> None:
    state = AState()
    state.there.clear()
    async with served(state, timeout=0.5) as session:
        first = asyncio.create_task(ask(session, {}))
        await state.asked.wait()
        assert (await ask(session, {}))[0] == 429
        status, told = await first
        assert (status, told["problem"]) == (504, "the answer takes longer than 0.5 s; ask about fewer pods")


async def test_the_document_is_what_the_handlers_do() -> None:
    state = AState()
    described = {(path, method) for path, methods in api.openapi()["paths"].items() for method in methods}
    assert described == {(route.path, route.method.lower()) for route in api.routes(state)}
    schemas = api.openapi()["components"]["schemas"]
    assert set(schemas["Question"]["properties"]) == set(Question.__struct_encode_fields__)
    assert set(schemas["Answer"]["properties"]) == set(Answer.__struct_encode_fields__)
    async with served(state) as session, session.get(api.OPENAPI_PATH) as response:
        assert await response.json() == api.openapi()


async def test_a_text_that_is_read_past_the_deadline_keeps_others_out(monkeypatch: pytest.MonkeyPatch) -> None:
    may_end = threading.Event()

    def slow(name: str, text: str) -> list[object]:
        may_end.wait(30)
        return documents(name, text)

    monkeypatch.setattr(api, "documents", slow)
    async with served(AState(), timeout=0.2) as session:
        assert (await ask(session, "a: 1", api.DOCUMENTS_PATH))[0] == 504
        assert (await ask(session, "a: 1", api.DOCUMENTS_PATH))[0] == 429
        may_end.set()
        async with asyncio.timeout(30):
            while (await ask(session, "a: 1", api.DOCUMENTS_PATH)) != (200, [{"a": 1}]):
                pass
