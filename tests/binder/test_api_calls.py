"""What became of a call, in the core's words: refused where it was certainly not done, else unknown."""

import random
import time

import pytest

from flotilla.results import ApiCall
from services.binder.api_calls import ApiCalls
from services.binder.events import Call, Called, Event, Refused, Unknown
from services.binder.metrics import BinderMetrics, BindSpans
from shared.config.settings import ApiSettings
from shared.extenders.client import ExtenderClient
from shared.kube.client import KubeClient
from shared.telemetry.metrics import Metrics
from shared.telemetry.tracing import Tracer
from testing.simulator.service import Simulator, SimulatorOptions

pytestmark = pytest.mark.asyncio

BINDING = ApiCall("POST", "/api/v1/namespaces/default/pods/p/binding", {"metadata": {"name": "p"}})


async def called(server: str, seconds: float, *, binds: bool) -> Called:
    fed: list[Event] = []
    client = await KubeClient.open(ApiSettings(server=server))
    extenders = ExtenderClient([])
    tracer = Tracer("binder", "b", ids=random.Random(1))
    calling = ApiCalls(
        client, fed.append, lambda _: True, time.monotonic, BinderMetrics(Metrics()), BindSpans(tracer), extenders
    )
    try:
        await calling.make(Call("u", 1, 1, BINDING, time.monotonic() + seconds, binds))
    finally:
        await extenders.close()
        await client.close()
    (event,) = fed
    assert isinstance(event, Called)
    return event


@pytest.mark.parametrize("binds", [True, False])
async def test_what_could_not_be_sent_was_not_done(binds: bool) -> None:
    event = await called("http://127.0.0.1:1", 5.0, binds=binds)
    assert isinstance(event.result, Refused) and event.result.status == 0


@pytest.mark.parametrize("binds", [True, False])
async def test_what_is_not_answered_in_time_may_have_been_done(binds: bool) -> None:
    simulator = Simulator(SimulatorOptions(kubelet=False))
    url = await simulator.start()
    try:
        simulator.faults.delay("POST", "/binding$", 1.0)
        began = time.monotonic()
        event = await called(url, 0.1, binds=binds)
        assert isinstance(event.result, Unknown)
        assert time.monotonic() - began < 1.0
    finally:
        await simulator.stop()


@pytest.mark.parametrize("binds", [True, False])
async def test_what_only_waited_for_its_turn_was_not_done(binds: bool) -> None:
    """The server asks to come back later, and then there is no time left."""
    simulator = Simulator(SimulatorOptions(kubelet=False))
    url = await simulator.start()
    try:
        simulator.faults.fail("POST", "/binding$", 429, times=100, reason="TooManyRequests")
        event = await called(url, 0.5, binds=binds)
        assert isinstance(event.result, Refused)
    finally:
        await simulator.stop()
