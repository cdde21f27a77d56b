"""Asks every process of a pipeline about itself, and says in words what is wrong.

async with asking(bus) as asker:
    statuses = await asker.ask()
    for finding in findings(statuses): ...
"""

import asyncio
import secrets
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

from shared.bus import Bus, Envelope, Subscription
from shared.bus.subjects import STATUS_ANSWERS, STATUS_ASK
from shared.messages.status import LEADER, STANDBY, AskStatus, ProcessStatus

SERVICES = ("watcher", "queue", "snapshot", "cycle", "worker", "binder")
LED = SERVICES[:4]
"""Services with one leader."""
PEERS: Mapping[str, str] = {"cycle": "worker", "snapshot": "binder"}
"""Which service's processes report to the leader of which."""
PATIENCE = 2.0
"""Seconds to wait for processes that should answer."""
SOON = 0.5
"""The same where the answer is only a remark."""
QUIET = 0.2
"""Seconds without a further answer after which those that nobody knows of are not waited for."""
MAX_PROCESSES = 4096
"""Answers kept."""
ROOTS = ("nats", "cluster", "redis")
"""Checks about servers: what they say is why much else is missing."""
FAR_BEHIND = 5000
"""Messages or changes that a reader is behind, from which on it is said."""


class Finding(NamedTuple):
    """`wrong`: something is missing or not ready; otherwise it is worth knowing."""

    text: str
    wrong: bool = True


class StatusAsker:
    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._id = ""
        self._answers: dict[tuple[str, ...], ProcessStatus] = {}
        self._heard_at = 0.0
        self._heard = asyncio.Event()

    async def listen(self) -> Subscription[ProcessStatus]:
        return await self._bus.subscribe(STATUS_ANSWERS, ProcessStatus, self._on_answer, ours=False)

    async def ask(self, patience: float = PATIENCE) -> list[ProcessStatus]:
        """The answers, in the order of the pipeline. Waits for `patience` only if processes are missing."""
        self._id = secrets.token_hex(8)
        self._answers = {}
        self._bus.post(STATUS_ASK, AskStatus(self._id))
        began = self._heard_at = time.monotonic()
        while (waited := time.monotonic() - began) < patience:
            quiet = time.monotonic() - self._heard_at
            if quiet >= QUIET and not missing(self._answers.values()):
                break
            self._heard.clear()
            try:
                async with asyncio.timeout(min(QUIET, patience - waited)):
                    await self._heard.wait()
            except TimeoutError:
                continue
        return in_order(self._answers.values())

    def _on_answer(self, answer: ProcessStatus, envelope: Envelope) -> None:
        if answer.id == self._id and len(self._answers) < MAX_PROCESSES:
            self._answers[answer.service, answer.name, answer.host, str(answer.pid)] = answer
            self._heard_at = time.monotonic()
            self._heard.set()


@asynccontextmanager
async def asking(bus: Bus) -> AsyncIterator[StatusAsker]:
    asker = StatusAsker(bus)
    subscription = await asker.listen()
    try:
        yield asker
    finally:
        await subscription.close()


def in_order(statuses: Iterable[ProcessStatus]) -> list[ProcessStatus]:
    """By service in the order of the pipeline, the leader first."""
    known = {service: number for number, service in enumerate(SERVICES)}
    return sorted(
        statuses, key=lambda each: (known.get(each.service, len(known)), each.role != LEADER, each.name, each.pid)
    )


def missing(statuses: Iterable[ProcessStatus]) -> list[Finding]:
    """Which processes should have answered and have not."""
    statuses = list(statuses)
    by_service: dict[str, list[ProcessStatus]] = defaultdict(list)
    for each in statuses:
        by_service[each.service].append(each)
    found = [Finding(text) for service in SERVICES if (text := _without(service, by_service[service]))]
    there = len(by_service["worker"])
    known = there
    for service, of in PEERS.items():
        heard = {name for each in by_service[service] if each.role == LEADER for name in each.hears} - {*SERVICES}
        silent = sorted(heard - {each.name for each in by_service[of]})
        known += len(silent) if of == "worker" else 0
        for name in silent:
            why = "it is busy, or of an earlier release"
            found.append(Finding(f"{name} does not answer, but the {service} hears it: {why}"))
    due = expected_workers(statuses)
    if there and known < due:
        found.append(Finding(f"{there} of {due} workers answer"))
    return found


def expected_workers(statuses: Iterable[ProcessStatus]) -> int:
    """How many were started together, by the settings of those that answer; 0 if unknown."""
    return max((each.expected_workers for each in statuses), default=0)


def processes(statuses: Iterable[ProcessStatus]) -> int:
    """How many there are; services that share one answer each for themselves."""
    return len({(each.host, each.pid) for each in statuses})


def _without(service: str, statuses: Sequence[ProcessStatus]) -> str:
    """What is wrong if no process does this service's work; empty if one does."""
    if not statuses:
        return f"no {service} answers"
    if service not in LED or any(each.role == LEADER for each in statuses):
        return ""
    standby = next((each for each in statuses if each.role == STANDBY), None)
    if standby is not None:
        return f"{standby.leader} leads as {service}, and does not answer ({standby.name} is on standby)"
    return f"no {service} leads yet"


def findings(statuses: Sequence[ProcessStatus]) -> list[Finding]:
    """What is wrong, and what is worth knowing; one line for each cause."""
    causes = _causes(statuses)
    found = [finding for key, finding in causes if key in ROOTS] + missing(statuses)
    for service in LED:
        leaders = [each for each in statuses if (each.service, each.role) == (service, LEADER)]
        if len(leaders) > 1:
            names = ", ".join(f"{each.name} (term {each.term})" for each in leaders)
            found.append(Finding(f"two lead as {service}: {names}; the one with the lower term will notice"))
    found += [finding for key, finding in causes if key not in ROOTS]
    found += [Finding(f"{each.name} is {lag:,} behind", wrong=False) for each, lag in _far_behind(statuses)]
    found += _differences(statuses)
    return found


def _causes(statuses: Iterable[ProcessStatus]) -> list[tuple[str, Finding]]:
    """Why processes are not ready, each cause once, with the check that says so."""
    names: dict[tuple[str, str], list[str]] = defaultdict(list)
    for each in statuses:
        for key, why in each.problems.items():
            names[key, why].append(each.name)
    return [(key, Finding(f"not ready: {', '.join(of)}: {key}: {why}")) for (key, why), of in names.items()]


async def not_ready(bus: Bus) -> list[str]:
    """Why processes that answer soon are not ready, each cause once, servers first."""
    async with asking(bus) as asker:
        causes = _causes(await asker.ask(SOON))
    return [finding.text for _, finding in sorted(causes, key=lambda cause: cause[0] not in ROOTS)]


def _differences(statuses: Sequence[ProcessStatus]) -> list[Finding]:
    pipelines = sorted({each.pipeline for each in statuses if each.pipeline})
    found = []
    if len(pipelines) > 1:
        text = f"processes of {len(pipelines)} pipelines use this prefix: {', '.join(pipelines)}"
        found.append(Finding(f"{text}; give one of them another prefix"))
    versions: dict[str, list[str]] = defaultdict(list)
    for each in statuses:
        versions[each.version].append(each.name)
    if len(versions) > 1:
        of = "; ".join(f"{version}: {', '.join(names)}" for version, names in sorted(versions.items()))
        found.append(Finding(f"versions differ, as during an upgrade ({of})", wrong=False))
    return found


def lags(statuses: Sequence[ProcessStatus]) -> list[int | None]:
    """For each process, by how many messages or changes it is behind the leader that makes them; None if it reads none.

    The answers are milliseconds apart, so a busy pipeline shows small numbers.
    """
    newest = {
        what: max((each.positions.get(what, 0) for each in statuses if each.service == service), default=0)
        for what, service in (("watch", "watcher"), ("seq", "snapshot"))
    }
    return [_lag(each, newest) for each in statuses]


def _lag(status: ProcessStatus, newest: Mapping[str, int]) -> int | None:
    what = {"queue": "watch", "snapshot": "watch", "worker": "seq"}.get(status.service, "")
    position = status.positions.get(what)
    if position is None or (what == "seq" and not position):
        return None
    return max(0, newest[what] - position)


def _far_behind(statuses: Sequence[ProcessStatus]) -> list[tuple[ProcessStatus, int]]:
    behind = zip(statuses, lags(statuses), strict=True)
    return [(status, lag) for status, lag in behind if lag is not None and lag >= FAR_BEHIND]


def total(statuses: Iterable[ProcessStatus], value: str, *, service: str = "") -> float:
    """The sum of a value over processes; with a name that ends in `/`, over its labels as well."""
    of = (each for each in statuses if not service or each.service == service)
    if value.endswith("/"):
        return sum(number for each in of for name, number in each.values.items() if name.startswith(value))
    return sum(each.values.get(value, 0.0) for each in of)
