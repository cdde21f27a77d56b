"""A binder that is cut off while it prepares a pod takes nothing back from the binder that binds the pod instead."""

import asyncio
from contextlib import AbstractContextManager, nullcontext
from unittest.mock import patch

import pytest

import shared.plugins.devices.pre_bind as pre_bind
from testing.builders import pod
from testing.simulation.apiserver import Answer
from testing.simulation.client import Moment, Sent
from testing.simulation.devices import DeviceWorld, claiming
from testing.simulation.drawing import PROCESSES
from testing.simulation.schedule import Entry, Schedule
from testing.simulation.substitutes import run_on_virtual_time

SECOND = "use1/status"
"""The status of the pod's second claim, written when the first one is reserved."""
LONG = 70.0


def without_marks() -> AbstractContextManager[object]:
    """A run takes back every reservation of its pod."""
    return patch.object(pre_bind, "_identity", lambda claim: claim["metadata"]["uid"])


async def broken_after(api: float, bus: float) -> str:
    """What is violated once the binder is off the API server for `api` seconds, and off NATS for `bus`."""
    world = DeviceWorld(Schedule(1, "devices", 6, 0.0, ()))
    world.furnish()
    for name in PROCESSES:
        world.start(name)
    keeper = asyncio.create_task(world.keep())
    await asyncio.sleep(20.0)
    cut: list[str] = []

    def on_call(sent: Sent, moment: Moment, answer: Answer | None) -> None:
        if moment is Moment.SENT and sent.method == "PUT" and sent.path.endswith(SECOND) and not cut:
            cut.append(sent.sender)
            world.mishaps.cut_off(
                Entry(1, world.now, "cut_off", {"name": sent.sender, "api": str(api), "for": str(bus)})
            )

    world.around.transport.on_call.append(on_call)
    world.server.put_pod(claiming(pod("p").uid("u1").request(cpu="100m").build(), ["one", "net"]))
    try:
        while world.now < 20.0 + LONG:
            await world._wait_until(world.now + 0.25)
    except AssertionError as wrong:
        return str(wrong)
    finally:
        keeper.cancel()
        await world.end()
    assert cut
    assert world.server.pods["u1"].spec.node_name
    return ""


@pytest.mark.parametrize(("api", "bus"), [(3.0, 14.0), (9.0, 20.0)])
@pytest.mark.parametrize("marks", [True, False])
def test_a_run_that_fails_late_leaves_the_reservations_of_the_one_that_bound_the_pod(
    api: float, bus: float, marks: bool
) -> None:
    found: list[str] = []

    async def run() -> None:
        found.append(await broken_after(api, bus))

    with nullcontext() if marks else without_marks():
        run_on_virtual_time(run)
    if marks:
        assert found == [""]
    else:
        assert "its claim u1-use0 is not reserved for it" in found[0]
