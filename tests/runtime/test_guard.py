"""Endpoints on other addresses than loopback: TLS, and all but health for those alone whom the API server lets."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from shared.config.settings import ApiSettings, Settings, serves_tls
from shared.errors import ClusterError, UserError
from shared.kube import reviews as reviewing
from shared.kube.client import KubeClient
from shared.kube.reviews import MAX_CACHED, MAX_WAITING, TTL, Reviews, User
from shared.runtime.context import Health
from shared.runtime.pages import PATHS, Pages
from shared.runtime.serving import Desk, served, serving_context
from shared.telemetry.metrics import Metrics
from testing.simulator.service import Simulator, SimulatorOptions
from testing.simulator.subresources import ReviewedUser
from tests.certificates import make_certificate, make_certificates
from tests.deploy.recorder import Recorder, recorders
from tools.cli.main import main

pytestmark = pytest.mark.asyncio

RIGHT, RIGHTLESS, WRONG = "t-right", "t-rightless", "t-wrong"
USERS = (
    ReviewedUser(token=RIGHT, name="prometheus", groups=("monitoring",), may=("get /*",)),
    ReviewedUser(token=RIGHTLESS, name="somebody"),
)
GUARDED = [path for path in PATHS if path not in ("/healthz", "/livez", "/readyz")]


@dataclass
class Served:
    url: str
    simulator: Simulator
    asked: Recorder
    metrics: Metrics

    def reviews(self, what: str) -> int:
        return sum(what in path for _, path in self.asked.requests)


@asynccontextmanager
async def secured(**settings: object) -> AsyncIterator[Served]:
    simulator = Simulator(SimulatorOptions(users=USERS))
    server = await simulator.start()
    try:
        async with recorders(server, "us") as asked:
            wanted = Settings(http_scheme="https", api=ApiSettings(server=asked["us"].url), **settings)  # type: ignore[arg-type]
            health, metrics = Health(), Metrics()
            health.ready()
            pages = Pages(service="queue", name="q", settings=wanted, health=health)
            async with served(wanted, Desk(pages, metrics)) as url:
                yield Served(url, simulator, asked["us"], metrics)
    finally:
        await simulator.stop()


async def get(url: str, token: str | None = None, tls: ssl.SSLContext | bool = False) -> tuple[int, str]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(headers=headers) as session, session.get(url, ssl=tls) as answer:
        return answer.status, await answer.text()


async def test_health_needs_no_token() -> None:
    async with secured() as it:
        assert it.url.startswith("https://127.0.0.1:")
        for path in ("/livez", "/readyz", "/healthz", "/readyz?verbose", "/livez/ping"):
            assert (await get(it.url + path))[0] == 200
        assert it.asked.requests == []


@pytest.mark.parametrize("path", [*GUARDED, "/nowhere", "/livezz"])
async def test_other_pages_need_authorization(path: str) -> None:
    async with secured() as it:
        url = it.url + path
        assert await get(url) == (401, "a bearer token is needed: Authorization: Bearer TOKEN\n")
        assert await get(url, WRONG) == (401, "the API server does not know this token\n")
        assert await get(url, RIGHTLESS) == (403, f'user "somebody" cannot get path "{path}"\n')
        assert (await get(url, RIGHT))[0] == (200 if path in PATHS else 404)
        count = it.metrics.registry.get_sample_value("flotilla_http_refused_total", {"status": "401"})
        assert count == 2


async def test_reviews_are_cached() -> None:
    async with secured() as it:
        for _ in range(3):
            answers = await asyncio.gather(
                *(get(f"{it.url}/metrics", token) for token in (RIGHT, RIGHTLESS, WRONG) * 5)
            )
            assert sorted(status for status, _ in answers) == [200] * 5 + [401] * 5 + [403] * 5
        assert (it.reviews("tokenreviews"), it.reviews("subjectaccessreviews")) == (3, 2)
        await get(f"{it.url}/statusz", RIGHT)
        assert (it.reviews("tokenreviews"), it.reviews("subjectaccessreviews")) == (3, 3)


async def test_without_the_api_server_requests_are_denied() -> None:
    async with secured() as it:
        it.simulator.faults.fail("POST", "tokenreviews", 403, times=10, reason="Forbidden")
        status, text = await get(f"{it.url}/metrics", RIGHT)
        assert status == 503
        assert text.startswith("denied, because the API server cannot be asked: ")
        assert (await get(f"{it.url}/readyz"))[0] == 200
        it.simulator.faults.clear()
        assert (await get(f"{it.url}/metrics", RIGHT))[0] == 200


async def test_without_an_api_server_configured_requests_are_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    wanted = Settings(http_scheme="https")
    pages = Pages(service="worker", name="w", settings=wanted, health=Health())
    async with served(wanted, Desk(pages, Metrics())) as url:
        status, text = await get(f"{url}/metrics", RIGHT)
        assert status == 503 and "no API server" in text
        assert (await get(f"{url}/livez"))[0] == 200


# Certificates


async def test_given_certificates_are_served_and_reloaded(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    given = {"http_cert": str(tmp_path / "server.pem"), "http_key": str(tmp_path / "server.key")}
    async with secured(**given) as it:
        trusted = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        assert (await get(f"{it.url}/livez", tls=trusted))[0] == 200
        make_certificate(tmp_path, "server", "elsewhere.example")
        with pytest.raises(aiohttp.ClientConnectorCertificateError, match="IP address mismatch"):
            await get(f"{it.url}/livez", tls=trusted)
        (tmp_path / "server.key").write_text("half written")
        assert (await get(f"{it.url}/livez"))[0] == 200


async def test_unusable_certificates_are_reported(tmp_path: Path) -> None:
    make_certificates(tmp_path)
    for given, told in (
        ({"http_cert": str(tmp_path / "server.pem")}, "http_cert and http_key go together"),
        ({"http_cert": str(tmp_path / "gone"), "http_key": str(tmp_path / "server.key")}, "gone: No such file"),
        (
            {"http_cert": str(tmp_path / "server.pem"), "http_key": str(tmp_path / "ca.key")},
            "not a certificate and its key",
        ),
    ):
        with pytest.raises(UserError, match=told):
            serving_context(Settings(**given))  # type: ignore[arg-type]


async def test_tls_except_on_loopback_or_when_disabled() -> None:
    clear = {"127.0.0.1", "127.0.0.2", "::1", "localhost"}
    for host in (*clear, "0.0.0.0", "::", "", "10.0.0.7", "queue"):
        assert serves_tls(Settings(http_host=host)) == (host not in clear), host
        assert serves_tls(Settings(http_host=host, http_scheme="https"))
        assert not serves_tls(Settings(http_host=host, http_scheme="http"))


async def test_flotilla_health_uses_tls(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    async with secured() as it:
        port = it.url.rpartition(":")[2]
        assert await asyncio.to_thread(main, ("health", it.url)) == 0
        assert capsys.readouterr().out == "ok\n"
        monkeypatch.setenv("FLOTILLA_HTTP_PORT", port)
        monkeypatch.setenv("FLOTILLA_HTTP_HOST", "0.0.0.0")
        assert await asyncio.to_thread(main, ("health",)) == 0
        assert await asyncio.to_thread(main, ("health", "--port", port, "--live")) == 0


# Reviews


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@asynccontextmanager
async def a_reviewer(clock: Clock) -> AsyncIterator[tuple[Reviews, Recorder]]:
    simulator = Simulator(SimulatorOptions(users=USERS))
    async with recorders(await simulator.start(), "us") as asked:
        reviews = Reviews(lambda: KubeClient.open(ApiSettings(server=asked["us"].url)), clock)
        try:
            yield reviews, asked["us"]
        finally:
            await reviews.close()
            await simulator.stop()


async def test_cached_reviews_expire() -> None:
    clock = Clock()
    async with a_reviewer(clock) as (reviews, asked):
        for now, expected in ((0.0, 1), (TTL - 0.1, 1), (TTL, 2), (2 * TTL - 0.1, 2)):
            clock.now = now
            assert await reviews.user_of(RIGHT) == User("prometheus", "", ("monitoring", "system:authenticated"))
            assert len(asked.requests) == expected


async def test_cached_and_pending_reviews_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reviewing, "MAX_CACHED", 3)
    async with a_reviewer(Clock()) as (reviews, asked):
        for number in (0, 1, 2, 3, 3, 2, 1, 0):
            assert await reviews.user_of(f"wrong-{number}") is None
        assert len(asked.requests) == 5, "the first one was forgotten"
        waiting = [asyncio.create_task(reviews.user_of(f"other-{number}")) for number in range(MAX_WAITING + 1)]
        *_, last = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(last, ClusterError)
    assert MAX_CACHED == 1024
