"""What a process tells of itself over HTTP: as a process, and page by page."""

import asyncio
import json
import os
import platform
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest

from shared.config.document import ConfigSource
from shared.config.reading import read_config_values
from shared.config.setting_sources import SOURCES
from shared.config.settings import ApiSettings, Settings
from shared.runtime.context import Health
from shared.runtime.pages import PATHS, Pages, without_secrets
from shared.runtime.serving import Desk, endpoints
from shared.telemetry.metrics import Metrics
from tests.runtime.test_host import fetch, hosted
from tests.servers import nats_server

pytestmark = pytest.mark.asyncio

SECRET = "hunter2"
CONFIG = f"""\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
podMaxBackoffSeconds: 60
extenders:
- urlPrefix: https://user:{SECRET}@extender/x
  filterVerb: filter
"""


@asynccontextmanager
async def served(health: Health | None = None, **settings: object) -> AsyncIterator[str]:
    wanted = Settings(**settings)  # type: ignore[arg-type]
    pages = Pages(service="queue", name="queue-7", settings=wanted, health=health or Health())
    async with endpoints("127.0.0.1", 0, Desk(pages, Metrics())) as url:
        yield url


def well(leader: str = "", **faults: str) -> Health:
    health = Health()
    health.wait_for("listing", "the cluster has not been listed yet")
    health.clear("listing")
    health.check("nats", lambda: faults.get("nats", ""))
    health.ready()
    if leader:
        health.stand_by(leader, 0.0)
    return health


# A whole process


async def test_no_endpoint_or_log_line_has_secrets(tmp_path: Path) -> None:
    (tmp_path / "scheduler.yaml").write_text(CONFIG)
    async with nats_server() as server:
        password = urlsplit(server.url).password
        assert password
        settings = {
            "name": "me",
            "redis_url": f"redis://user:{SECRET}@127.0.0.1:1/0?password={SECRET}",
            "api": {"server": f"https://user:{SECRET}@127.0.0.1:1", "token": SECRET},
            "config": str(tmp_path / "scheduler.yaml"),
            "log_level": "debug",
        }
        async with hosted("serves", server, **settings) as process:
            url = await process.url()
            told = [(await fetch(f"{url}{path}"))[1] for path in (*PATHS, "/readyz?verbose", "/readyz/nats")]
            code, _, log = await process.end(signal.SIGTERM)
    assert code == 0
    assert all(told)
    assert not [text for text in (*told, *log) if SECRET in text or password in text]
    configz = json.loads(told[list(PATHS).index("/configz")])
    assert configz["settings"]["token"] == "***"
    in_force = configz["kubescheduler.config.k8s.io"]
    assert (in_force["podMaxBackoffSeconds"], in_force["podInitialBackoffSeconds"]) == (60, 1)
    assert in_force["extenders"][0]["urlPrefix"] == "https://***@extender/x"


# Health


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/readyz", (200, "ok\n")),
        ("/readyz?verbose", (200, "[+]service ok\n[+]listing ok\n[+]nats ok\nreadyz check passed\n")),
        ("/readyz/nats", (200, "ok\n")),
        ("/livez?verbose", (200, "[+]ping ok\nlivez check passed\n")),
        ("/healthz?verbose=true", (200, "[+]ping ok\nhealthz check passed\n")),
        ("/livez/ping", (200, "ok\n")),
        ("/readyz/ping", (404, "there is no check of this name; there are service, listing, nats\n")),
    ],
)
async def test_a_ready_process(path: str, expected: tuple[int, str]) -> None:
    async with served(well()) as url:
        assert await fetch(url + path) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/readyz", (503, "nats: the connection is lost\n")),
        (
            "/readyz?verbose",
            (503, "[+]service ok\n[+]listing ok\n[-]nats failed: the connection is lost\nreadyz check failed\n"),
        ),
        ("/readyz/nats", (503, "nats: the connection is lost\n")),
        ("/readyz/listing", (200, "ok\n")),
        ("/readyz?exclude=nats", (200, "ok\n")),
        (
            "/readyz?exclude=nats&exclude=x&verbose",
            (
                200,
                "[+]service ok\n[+]listing ok\n[+]nats excluded: ok\n"
                "warn: there is no check to exclude: 'x'\nreadyz check passed\n",
            ),
        ),
        ("/livez", (200, "ok\n")),
    ],
)
async def test_a_process_that_is_not_ready(path: str, expected: tuple[int, str]) -> None:
    async with served(well(nats="the connection is lost")) as url:
        assert await fetch(url + path) == expected


async def test_a_standby_is_ready_and_names_the_leader() -> None:
    async with served(well("queue-b")) as url:
        assert await fetch(f"{url}/readyz") == (200, "ok: standby, queue-b leads\n")
        assert "\nRole: standby: queue-b leads\n" in (await fetch(f"{url}/statusz"))[1]


# Pages


async def test_statusz_describes_the_process() -> None:
    async with served(well(nats="lost")) as url:
        status, text = await fetch(f"{url}/statusz")
    assert status == 200
    assert text.splitlines()[:2] == ["", "flotilla-queue statusz"]
    told = dict(line.split(": ", 1) for line in text.splitlines()[4:])
    assert re.fullmatch(r"[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d UTC 20\d\d", told["Started"])
    assert re.fullmatch(r"0 hr 00 min \d\d sec", told["Up"])
    assert told["Python version"] == platform.python_version()
    assert (told["Name"], told["Pid"], told["Emulation version"]) == ("queue-7", str(os.getpid()), "1.36")
    assert (told["Ready"], told["Not ready"]) == ("no", "nats: lost")
    assert told["Paths"].split() == list(PATHS)


async def test_the_root_links_all_pages() -> None:
    async with served(well()) as url, aiohttp.ClientSession() as session, session.get(f"{url}/") as answer:
        text = await answer.text()
        assert (answer.status, answer.content_type) == (200, "text/html")
        assert answer.headers["Content-Security-Policy"] == "default-src 'none'"
    assert "queue-7" in text
    assert re.findall(r'href="([^"]*)"', text) == list(PATHS)


async def test_some_metrics_can_be_chosen() -> None:
    metrics = Metrics()
    for name in ("one", "two"):
        metrics.counter(name, "A counter.").inc()
    pages = Pages(service="queue", name="queue-7", settings=Settings(), health=well())
    async with endpoints("127.0.0.1", 0, Desk(pages, metrics)) as url:
        _, everything = await fetch(f"{url}/metrics")
        _, chosen = await fetch(f"{url}/metrics?name[]=one_total&name[]=nonsense")
    assert "two_total 1.0" in everything
    assert [line for line in chosen.splitlines() if not line.startswith("#")] == ["one_total 1.0"]


async def test_every_listed_path_is_served_read_only() -> None:
    async with served(well()) as url, aiohttp.ClientSession() as session:
        for path in PATHS:
            for method, expected in (("GET", 200), ("HEAD", 200), ("POST", 405), ("PUT", 405), ("DELETE", 405)):
                async with session.request(method, url + path) as answer:
                    assert answer.status == expected, f"{method} {path}"


async def test_flagz_has_every_flag_with_its_value() -> None:
    async with served(seed=4, nats_url=f"nats://u:{SECRET}@h", http_port=80) as url:
        status, text = await fetch(f"{url}/flagz")
    assert status == 200
    assert text.splitlines()[1] == "flotilla-queue flagz"
    lines = text.splitlines()[4:]
    assert lines == sorted(lines)
    flags = dict(line.split("=", 1) for line in lines)
    assert flags.keys() == {source.flag[2:] for source in SOURCES if source.flag} | {"http"}
    assert (flags["seed"], flags["nats"], flags["http"]) == ("4", "nats://***@h", "127.0.0.1:80")


async def test_configz_without_a_file_has_the_defaults() -> None:
    async with (
        served(api=ApiSettings(token=SECRET)) as url,
        aiohttp.ClientSession() as session,
        session.get(f"{url}/configz") as answer,
    ):
        assert answer.content_type == "application/json"
        told = await answer.json()
    assert told["kubescheduler.config.k8s.io"] == read_config_values(None).written
    assert told["settings"].keys() == {source.field for source in SOURCES}
    assert (told["settings"]["round_size"], told["settings"]["token"]) == (1024, "***")


async def test_configz_of_a_wrong_configuration_has_the_settings_alone() -> None:
    pages = Pages(
        service="queue", name="q", settings=Settings(), health=Health(), config=ConfigSource("x.yaml", b"kind: x")
    )
    assert (await asyncio.to_thread(pages.configz)).keys() == {"settings"}


async def test_configz_hides_secrets() -> None:
    given = {
        "tlsConfig": {"keyData": SECRET, "certData": "shown", "keyFile": "/a/key.pem"},
        "args": [{"apiToken": SECRET, "clientSecret": SECRET, "dbPassword": SECRET, "token": "", "weight": 3}],
        "urls": [f"https://u:{SECRET}@h/p", "https://h/p"],
        "tokens": None,
    }
    assert without_secrets(given) == {
        "tlsConfig": {"keyData": "***", "certData": "shown", "keyFile": "/a/key.pem"},
        "args": [{"apiToken": "***", "clientSecret": "***", "dbPassword": "***", "token": "", "weight": 3}],
        "urls": ["https://***@h/p", "https://h/p"],
        "tokens": None,
    }
