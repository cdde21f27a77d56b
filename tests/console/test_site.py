"""What the console serves, to whom, and when it asks."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from shared.config.settings import Settings
from shared.messages.inspection import ListQueue
from shared.runtime.context import Health
from shared.runtime.pages import Pages
from shared.runtime.serving import Desk, served
from shared.telemetry.metrics import Metrics
from tests.bus.support import PREFIX, a_bus, until
from tests.servers import nats_server
from tools.console import follower as following
from tools.console.follower import Follower
from tools.console.site import POLICY, files, site


@asynccontextmanager
async def a_site(**given: Any) -> AsyncIterator[tuple[str, aiohttp.ClientSession]]:
    settings = Settings(**given)
    pages = Pages(service="console", name="console", settings=settings, health=Health())
    async with (
        served(settings, Desk(pages, Metrics()), site(settings, Follower())) as url,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session,
    ):
        yield url, session


@pytest.mark.asyncio
async def test_every_answer_forbids_what_a_page_does_not_need() -> None:
    async with a_site() as (url, session):
        for path in (*files(), "/api/labels", "/api/node", "/livez", "/nothing"):
            async with session.get(url + path) as answer:
                assert answer.status == (404 if path in ("/api/node", "/nothing") else 200), path
                headers = answer.headers
            assert headers["Content-Security-Policy"] == POLICY
            assert (headers["X-Content-Type-Options"], headers["Referrer-Policy"]) == ("nosniff", "no-referrer")
        for part in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"):
            assert part in POLICY
        assert "unsafe" not in POLICY
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            async with session.request(method, f"{url}/api/pods") as answer:
                assert answer.status == 405


def test_the_page_makes_no_markup_of_text() -> None:
    for path, (body, _) in files().items():
        found = re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function", body.decode()
        )
        assert found is None, f"{path}: {found}"


@pytest.mark.asyncio
async def test_another_name_of_this_machine_is_refused() -> None:
    async with a_site() as (url, session):
        port = url.rpartition(":")[2]
        hosts = {
            f"localhost:{port}": 200,
            "[::1]:99": 200,
            "127.0.0.1": 200,
            "evil.example": 403,
            f"evil.example:{port}": 403,
        }
        for host, status in hosts.items():
            for path in ("/", "/api/labels"):
                async with session.get(url + path, headers={"Host": host}) as answer:
                    assert answer.status == status, host


@pytest.mark.asyncio
async def test_pages_of_other_sites_may_lead_here_and_learn_nothing() -> None:
    async with a_site() as (url, session):
        for site_, path, status in (
            ("cross-site", "/", 200),
            ("cross-site", "/api/labels", 403),
            ("none", "/api/labels", 200),
        ):
            async with session.get(url + path, headers={"Sec-Fetch-Site": site_}) as answer:
                assert answer.status == status
                assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.asyncio
async def test_elsewhere_than_on_loopback_the_data_needs_a_token_and_the_page_does_not() -> None:
    async with a_site(http_scheme="https") as (url, session):
        for path in ("/", "/main.js", "/livez"):
            async with session.get(url + path) as answer:
                assert answer.status == 200
        for path in (
            "/api/stream",
            "/api/pods",
            "/api/pod",
            "/api/node",
            "/api/labels",
            "/api/preemptions",
            "/metrics",
        ):
            async with session.get(url + path) as answer:
                assert answer.status == 401, path


@pytest.mark.asyncio
async def test_nothing_is_asked_while_nobody_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(following, "UNWATCHED", 0.1)
    follower, heard = Follower(), list[object]()
    async with nats_server() as server, a_bus(server) as bus, a_bus(server) as other:
        await other.subscribe("queue.list", ListQueue, lambda asked, _: heard.append(asked))
        running = asyncio.create_task(follower.run(bus, Settings(prefix=PREFIX)))
        viewer = follower.open()
        assert viewer is not None
        await until(lambda: bool(heard))
        follower.close(viewer)
        await until(lambda: not bus._subscriptions)
        assert not follower.watched
        running.cancel()
