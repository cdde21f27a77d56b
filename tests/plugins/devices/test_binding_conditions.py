"""PreBind waits for the binding conditions of devices."""

from collections.abc import Callable

import pytest

from flotilla.results import SUCCESS, error
from shared.plugins.devices.device_readiness import WaitResult
from shared.plugins.devices.pre_bind import (
    WaitBegan,
    WaitEnded,
)
from tests.plugins.devices.support import (
    CLAIMS,
    Object,
    Server,
    allocation,
    result,
)

CONDITIONS: Object = {"bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]}


def device_condition(kind: str, **more: str) -> Callable[[Server], None]:
    condition = {"type": kind, "status": "True", "reason": "Why", "message": 'a "b"', **more}
    device = {"driver": "d.example.com", "pool": "n", "device": "gpu-0", "conditions": [condition]}
    return lambda server: server.set_status(devices=[device])


def test_it_waits_until_binding_conditions_hold() -> None:
    server = Server("c", during=device_condition("Ready"))
    assert server.run(server.wanted(allocation=allocation(result(**CONDITIONS)))) == SUCCESS
    assert server.calls[-1] == "GET /c"
    assert server.progress == [WaitBegan(), WaitEnded(("d.example.com",), WaitResult.SUCCESS)]


def test_devices_that_are_ready_already_count_as_awaited_without_a_pause() -> None:
    server = Server("c", during=lambda _: pytest.fail("paused"))
    device_condition("Ready")(server)
    ready = server.wanted(allocation=allocation(result(**CONDITIONS), result("gpu-1")))
    assert server.run(ready) == SUCCESS
    assert server.progress == [WaitBegan(), WaitEnded(("d.example.com",), WaitResult.SUCCESS)]


def test_devices_without_binding_conditions_are_not_awaited() -> None:
    server = Server("c")
    assert server.run(server.wanted(allocation=allocation())) == SUCCESS
    assert server.progress == []


def test_each_driver_with_binding_conditions_is_named_once() -> None:
    server = Server("c", during=device_condition("Broken"))
    other = {**result("x"), **CONDITIONS, "driver": "a.example.com"}
    devices = allocation(result(**CONDITIONS), other, result("gpu-1", **CONDITIONS), {**result(), "driver": "b"})
    server.run(server.wanted(allocation=devices))
    assert server.progress[-1] == WaitEnded(("a.example.com", "d.example.com"), WaitResult.FAILURE)


def test_a_failed_condition_fails_the_attempt_and_releases_the_claim() -> None:
    server = Server("c", during=device_condition("Broken"))
    failed = server.run(server.wanted(allocation=allocation(result(**CONDITIONS))))
    assert failed == error('device binding failed: claim=c, reason=Why, message="a \\"b\\""')
    assert server.claim()["status"]["reservedFor"] == []
    assert server.progress == [WaitBegan(), WaitEnded(("d.example.com",), WaitResult.FAILURE)]


def test_devices_that_never_become_ready_end_the_wait() -> None:
    server = Server("c")
    failed = server.run(server.wanted(allocation=allocation(result(**CONDITIONS))), patience=20.0)
    assert failed == error("device binding timeout: context deadline exceeded")
    assert server.progress == [WaitBegan(), WaitEnded(("d.example.com",), WaitResult.TIMEOUT)]


def take_back(server: Server) -> None:
    server.put(f"{CLAIMS}/c/status", server.claim() | {"status": {}})


def remove(server: Server) -> None:
    server.put(f"{CLAIMS}/c", server.claim() | {"metadata": server.claim()["metadata"] | {"finalizers": []}})
    server.call("DELETE", f"{CLAIMS}/c")


@pytest.mark.parametrize(("during", "reason"), [(take_back, "got deallocated elsewhere"), (remove, "not found")])
def test_a_claim_that_loses_its_devices_ends_the_wait(during: Callable[[Server], None], reason: str) -> None:
    server = Server("c", during=during)
    failed = server.run(server.wanted(allocation=allocation(result(**CONDITIONS))))
    assert not failed.ok
    assert reason in failed.reasons[0]
    assert server.progress[-1] == WaitEnded(("d.example.com",), WaitResult.FAILURE)


def test_a_claim_allocated_long_ago_has_less_time() -> None:
    server = Server("c")
    server.set_status(allocation={**allocation(result(**CONDITIONS)), "allocationTimestamp": "2025-12-31T23:49:58Z"})
    assert server.run(server.wanted()) == error("device binding timeout: claim=c")
    assert server.progress[-1] == WaitEnded(("d.example.com",), WaitResult.TIMEOUT)
