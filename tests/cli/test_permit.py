"""flotilla permit: requests to all binders, and their results."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest

from shared.bus import Bus, Envelope
from shared.bus.subjects import BINDER_BEATS, BINDER_PERMITS, BINDER_WAITING
from shared.errors import ClusterError
from shared.messages.binding import BinderBeat, ListPermits, PermitAnswer, PermitPending, Permits
from tests.bus.support import a_bus
from tests.cli.operating import Operator
from tests.servers import nats_server
from tools.cli.permit import Gathered, Held, outcome
from tools.supervisor.servers import NatsServer


def waits(name: str, *plugins: str, since: float | None = None) -> PermitPending:
    began = time.time() - 5 if since is None else since
    return PermitPending(f"uid-{name}", "shop", name, "node-1", began, dict.fromkeys(plugins, 55.0))


class Binder:
    """The part of a binder that answers about permits."""

    def __init__(self, bus: Bus, name: str, *waiting: PermitPending, more: int = 0, deaf: bool = False) -> None:
        self._bus = bus
        self._name = name
        self._more = more
        self._deaf = deaf
        self._pods = {pod.uid: pod for pod in waiting}
        self.rejected: list[str] = []
        self.obeys = True

    def hear(self, message: ListPermits | PermitAnswer, envelope: Envelope) -> None:
        if isinstance(message, PermitAnswer):
            self._on_answer(message)
        elif not self._deaf:
            waiting = sorted(self._pods.values(), key=lambda pod: pod.since)
            self._bus.post(BINDER_WAITING, Permits(message.id, self._name, waiting, self._more))

    def beat(self) -> None:
        self._bus.post(BINDER_BEATS, BinderBeat(self._name, "1", 100))

    def _on_answer(self, answer: PermitAnswer) -> None:
        pod = self._pods.get(answer.uid)
        if pod is None or not self.obeys:
            return
        plugins = {p: s for p, s in pod.plugins.items() if answer.allow and p != answer.plugin}
        if plugins:
            self._pods[pod.uid] = msgspec.structs.replace(pod, plugins=plugins)
            return
        del self._pods[pod.uid]
        if not answer.allow:
            self.rejected.append(f"{answer.plugin}: {answer.reason}")


@asynccontextmanager
async def beating(*binders: Binder) -> AsyncIterator[None]:
    async def beat() -> None:
        while True:
            for binder in binders:
                binder.beat()
            await asyncio.sleep(0.2)

    task = asyncio.create_task(beat())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def two_binders(server: NatsServer) -> AsyncIterator[tuple[Binder, Binder]]:
    async with a_bus(server) as bus, a_bus(server) as other:
        one = Binder(bus, "binder-0", waits("web", "Approval", "Gang"))
        two = Binder(other, "binder-1", waits("db", "Approval", since=time.time() - 100))
        await bus.subscribe(BINDER_PERMITS, (ListPermits, PermitAnswer), one.hear)
        await other.subscribe(BINDER_PERMITS, (ListPermits, PermitAnswer), two.hear)
        async with beating(one, two):
            yield one, two


@pytest.mark.asyncio
async def test_all_binders_are_asked_and_the_longest_wait_comes_first(operator: Operator) -> None:
    async with nats_server() as server, two_binders(server):
        operator.reaches(server)
        said = await operator.types("permit", "list")
        assert (said.code, said.err) == (0, "")
        assert [line.split()[:3] for line in said.lines] == [
            ["POD", "NODE", "BINDER"],
            ["shop/db", "node-1", "binder-1"],
            ["shop/web", "node-1", "binder-0"],
        ]
        assert said.lines[2].endswith("Approval (55 s left), Gang (55 s left)")
        found = json.loads((await operator.types("permit", "list", "-o", "json")).out)
        assert (found["binders"], found["silent"], found["more"]) == (2, [], 0)
        assert [(each["binder"], each["name"], list(each["plugins"])) for each in found["waiting"]] == [
            ("binder-1", "db", ["Approval"]),
            ("binder-0", "web", ["Approval", "Gang"]),
        ]


@pytest.mark.asyncio
async def test_a_pod_is_allowed_for_one_plugin_or_all(operator: Operator) -> None:
    async with nats_server() as server, two_binders(server):
        operator.reaches(server)
        wrong = await operator.types("permit", "allow", "shop/web", "--plugin", "Unknown")
        assert (wrong.code, wrong.out) == (1, "")
        assert wrong.err.startswith("flotilla: shop/web is not waiting for Unknown, but for Approval")
        one = await operator.types("permit", "allow", "web", "-n", "shop", "--plugin", "Gang")
        assert one.lines == ["shop/web: allowed for Gang; still waiting at binder-0 for Approval (55 s left)"]
        rest = await operator.types("permit", "allow", "shop/web")
        assert rest.lines == ["shop/web: allowed for Approval; binder-0 is binding it to node-1"]
        gone = await operator.types("permit", "allow", "shop/web")
        assert (gone.code, gone.err) == (1, "flotilla: shop/web is not waiting for a permit (binders: 2)\n")


@pytest.mark.asyncio
async def test_a_pod_is_rejected_with_a_reason(operator: Operator) -> None:
    async with nats_server() as server, two_binders(server) as (_, two):
        operator.reaches(server)
        said = await operator.types("permit", "reject", "shop/db", "--reason", "not today")
        assert said.lines == [
            "shop/db: rejected for Approval (not today); back in the queue, no longer assumed on node-1"
        ]
        assert two.rejected == ["Approval: not today"]


@pytest.mark.asyncio
async def test_a_pod_that_keeps_waiting_is_reported(operator: Operator) -> None:
    async with nats_server() as server, two_binders(server) as (one, _):
        operator.reaches(server)
        one.obeys = False
        said = await operator.types("permit", "allow", "shop/web")
        assert (said.code, said.out) == (1, "")
        assert said.err.startswith("flotilla: shop/web is still waiting at binder-0")


@pytest.mark.asyncio
async def test_binders_that_do_not_reply_are_named(operator: Operator) -> None:
    async with nats_server() as server, a_bus(server) as bus:
        operator.reaches(server)
        none = await operator.types("permit", "list")
        assert (none.code, none.out) == (1, "")
        assert none.err.startswith("flotilla: no binder replied within 3 s (NATS at 127.0.0.1:")
        full, deaf = Binder(bus, "binder-0", more=2000), Binder(bus, "binder-1", deaf=True)
        await bus.subscribe(BINDER_PERMITS, (ListPermits, PermitAnswer), full.hear)
        await bus.subscribe(BINDER_PERMITS, (ListPermits, PermitAnswer), deaf.hear)
        async with beating(full, deaf):
            listed = await operator.types("permit", "list")
            missing = await operator.types("permit", "allow", "web")
        assert listed.lines == [
            "no pod is waiting for a permit (binders: 1)", "2,000 more", "binder-1 is alive but does not reply",
        ]  # fmt: skip
        assert missing.err == (
            "flotilla: default/web is not waiting for a permit (binders: 1), or is one of 2,000 pods not listed; "
            "binder-1 did not reply\n"
        )


def test_the_result_is_unknown_if_the_binder_does_not_reply() -> None:
    before = Held("binder-0", waits("web", "Approval"))
    with pytest.raises(ClusterError, match="sent to binder-0, which does not reply"):
        outcome(before, Gathered([], 1, ["binder-0"], 0), ["Approval"], "", allow=True)


@pytest.mark.parametrize("arguments", [["permit"], ["permit", "allow"], ["permit", "grant", "web"]])
def test_bad_usage_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    from tools.cli.main import main

    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
