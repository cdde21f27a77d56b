"""Several services in one process: its pages, metrics, log and end."""

import json
import signal

import pytest
from prometheus_client.parser import text_string_to_metric_families

from shared.config.settings import Settings
from shared.messages.state import Heartbeat
from shared.runtime.context import Health
from shared.runtime.pages import Pages
from shared.runtime.serving import Desk, endpoints, shared_desk
from shared.telemetry.metrics import Metrics
from tests.bus.support import a_bus
from tests.runtime.test_host import fetch, hosted, until_it_says
from tests.servers import nats_server

pytestmark = pytest.mark.asyncio


async def test_each_has_a_name_and_pages_of_its_own_and_the_process_has_those_of_all() -> None:
    async with nats_server() as server, hosted("serves asks", server, name="both") as process:
        own = await process.url()
        url = own.removesuffix("/queue")
        assert own == f"{url}/queue"
        await until_it_says(f"{url}/cycle/readyz", (200, "ok\n"))
        assert await fetch(f"{url}/readyz") == (503, "queue.redis: not loaded yet\n")
        assert await fetch(f"{own}/readyz") == (503, "redis: not loaded yet\n")
        async with a_bus(server) as bus:
            await bus.publish("snapshot.deltas", Heartbeat(1, 1))
            await until_it_says(f"{url}/readyz", (200, "ok\n"))
        assert await fetch(f"{url}/readyz/cycle.nats") == (200, "ok\n")
        (asked,) = await samples(url, "flotilla_bus_messages_total", direction="out", subject="queue.take")
        assert asked[0] == "cycle" and asked[1] > 0
        taken = await samples(f"{url}/queue", "flotilla_bus_messages_total", direction="in", subject="queue.take")
        assert taken and taken[0][1] > 0
        assert len(await samples(url, "process_cpu_seconds_total")) == 1, "added up over services it is right"
        code, said, log = await process.end(signal.SIGTERM)
    assert (code, said) == (0, "good-bye")
    assert json.loads(log[0]) | {"time": ""} == {
        "time": "",
        "level": "info",
        "service": "queue+cycle",
        "name": "both",
        "logger": "flotilla.queue+cycle",
        "message": f"queue+cycle is both, at {url}",
    }


async def samples(url: str, name: str, **labels: str) -> list[tuple[str, float]]:
    """The service and value of each."""
    status, text = await fetch(f"{url}/metrics")
    assert status == 200
    return [
        (sample.labels.get("service", ""), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]


async def test_the_process_ends_with_the_first_that_ends_which_its_log_names() -> None:
    async with nats_server() as server, hosted("serves ends_on_a_message", server, name="both") as process:
        await process.url()
        async with a_bus(server) as bus:
            await bus.publish("queue.evicted", Heartbeat(1, 1))
            code, said, log = await process.end()
    assert (code, said) == (2, "good-bye")
    assert log[-1] == "flotilla cycle: asked to end"


async def test_an_exception_in_one_is_a_fault_of_that_one() -> None:
    async with nats_server() as server, hosted("serves fails_on_a_message", server, name="both") as process:
        code, _, log = await process.end()
    found = [json.loads(line) for line in log if "exception" in line]
    assert code == 1
    assert [(each["service"], each["name"]) for each in found] == [("cycle", "both-cycle")]
    assert json.loads(log[-1])["message"].startswith("cycle ends: snapshot.deltas: the handler of Heartbeat failed")


async def test_without_nats_none_of_them_is_ready() -> None:
    async with nats_server() as server, hosted("serves asks", server, name="both") as process:
        url = (await process.url()).removesuffix("/queue")
        async with a_bus(server) as bus:
            await bus.publish("snapshot.deltas", Heartbeat(1, 1))
            await until_it_says(f"{url}/readyz", (200, "ok\n"))
        await server.kill()
        lost = "the connection is lost"
        await until_it_says(f"{url}/readyz", (503, f"queue.nats: {lost}\ncycle.nats: {lost}\n"))


async def test_metrics_of_one_name_are_one_family() -> None:
    """Prometheus refuses a page on which a family begins twice."""
    settings, desks = Settings(), []
    for service in ("queue", "cycle"):
        metrics = Metrics(of_process=False)
        metrics.counter("flotilla_both_total", "Of both.", ["a"]).labels("x").inc()
        metrics.gauge(f"flotilla_{service}", "Of one.").set(1)
        health = Health()
        health.ready()
        desks.append(Desk(Pages(service=service, name=service, settings=settings, health=health), metrics))
    async with endpoints("127.0.0.1", 0, shared_desk("queue+cycle", "both", desks)) as url:
        status, text = await fetch(f"{url}/metrics")
        _, chosen = await fetch(f"{url}/metrics?name[]=flotilla_both_total")
        index = (await fetch(f"{url}/"))[1]
        own = (await fetch(f"{url}/cycle/"))[1]
    assert status == 200 and text.count("# TYPE flotilla_both_total counter") == 1
    both = [f'flotilla_both_total{{a="x",service="{service}"}} 1.0' for service in ("queue", "cycle")]
    assert [line for line in chosen.splitlines() if not line.startswith("#")] == both
    assert 'flotilla_cycle{service="cycle"} 1.0' in text
    assert 'href="/readyz"' in index and 'href="/cycle/"' in index and 'href="/cycle/readyz"' in own
