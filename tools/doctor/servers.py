"""NATS and Redis: reachable, of a version that works, set up as Flotilla needs it, and whose the prefix is."""

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple

from shared.bus import Bus, NatsAccess
from shared.bus.access import where
from shared.config.settings import Settings
from shared.errors import ClusterError, UserError
from shared.messages.status import ProcessStatus
from shared.store.link import RedisLink, connect
from shared.store.reader import pipeline_of
from shared.store.schema import Keys, check_schema, others
from shared.telemetry import Telemetry
from tools.doctor.cluster import ClusterReport
from tools.doctor.findings import Finding, note, ok, wrong
from tools.status import asking, processes
from tools.status import findings as status_findings

PATIENCE = 2.0
"""Seconds to connect."""
OLDEST_NATS, OLDEST_REDIS = (2, 2), (6, 2)
ALMOST = 0.9
"""Of Redis's maxmemory; beyond it is said."""
SILENT = logging.getLogger("flotilla.doctor")
SILENT.addHandler(logging.NullHandler())
SILENT.propagate = False


Cluster = Callable[[], Awaitable[ClusterReport]]
"""Waits for what is known of the cluster."""
Running = Callable[[], Awaitable[bool]]
"""Waits for whether any process of a pipeline answers."""


class NatsOptions(NamedTuple):
    """`origin`: the flag or variable that names the URL; empty for the default. `stale`: why it may be of the past."""

    settings: Settings
    origin: str
    stale: str = ""


class NatsReport(NamedTuple):
    """`answers`: whether any process does, under this prefix."""

    findings: list[Finding]
    answers: bool = False


async def check_nats(options: NatsOptions, telemetry: Telemetry, cluster: Cluster) -> NatsReport:
    settings = options.settings
    access = NatsAccess.of(settings)
    try:
        bus = await Bus.connect(access, settings.prefix, "flotilla-doctor", telemetry, patience=PATIENCE)
    except UserError as cause:
        fix = f"correct {options.origin or 'FLOTILLA_NATS_URL'}, or the server: docs/nats.md"
        return NatsReport([wrong(str(cause), fix)])
    except ClusterError as cause:
        if options.origin:
            return NatsReport([wrong(str(cause), options.stale or f"start it, or correct {options.origin}")])
        text = f"no NATS at {where(settings.nats_url)}: flotilla up starts its own"
        missing = note(text, "name yours by FLOTILLA_NATS_URL or --nats")
        return NatsReport([missing, *_elsewhere("", (await cluster()).networks)])
    try:
        text = f"NATS {bus.server_version} at {where(settings.nats_url)}"
        is_new = _at_least(bus.server_version, OLDEST_NATS)
        found = [ok(text) if is_new else wrong(text, "version 2.2 or newer is needed")]
        report = await cluster()
        async with asking(bus) as asker:
            statuses = await asker.ask()
        found += described_processes(statuses, settings.prefix, report.pipeline)
        if bus.network:
            found += _elsewhere(bus.network, report.networks)
        return NatsReport(found, bool(statuses))
    finally:
        await bus.close()


def described_processes(statuses: Sequence[ProcessStatus], prefix: str, pipeline: str) -> list[Finding]:
    """`pipeline`: the identity of one in this cluster; empty if it is not known."""
    if not statuses:
        return [note(f"no process of Flotilla answers under the prefix {prefix!r}")]
    found = status_findings(statuses)
    problems = [note(f"processes: {each.text}") for each in found if not each.wrong]
    if any(each.wrong for each in found):  # one cause may be behind all of them
        text = "; ".join(each.text for each in found if each.wrong)
        problems.append(wrong(f"processes: {text}", "flotilla status shows all of them"))
    owners = {each.pipeline for each in statuses if each.pipeline}
    if pipeline and owners and pipeline not in owners:
        text = f"the prefix {prefix!r} on this NATS belongs to the pipeline of another cluster: {owners.pop()}"
        problems.append(wrong(text, "set FLOTILLA_PREFIX or --prefix to another one, or use another NATS"))
    number = processes(statuses)
    return problems or [ok(f"processes: {f'all {number} are' if number > 1 else 'the only one is'} ready")]


def _elsewhere(network: str, leaders: Iterable[tuple[str, str]]) -> list[Finding]:
    """Whether the leaders of this cluster use another NATS than this one; it is empty if none was reached."""
    holders = sorted({holder for theirs, holder in leaders if theirs != network})
    if not holders:
        return []
    what = "another NATS than this one" if network else "a NATS that is not named here"
    text = f"the Leases are held by leaders on {what}: {', '.join(holders)}"
    return [wrong(text, "stop that pipeline, or connect to its NATS (FLOTILLA_NATS_URL, --nats)")]


async def check_redis(settings: Settings, origin: str, cluster: Cluster, running: Running) -> list[Finding]:
    """`origin`: the flag or variable that names the URL; empty for the default."""
    try:
        link = await connect(settings.redis_url, SILENT, PATIENCE)
    except UserError as cause:
        return [wrong(str(cause), f"correct {origin or 'FLOTILLA_REDIS_URL'}, or the server: docs/redis.md")]
    except ClusterError as cause:
        if not origin and await running():
            return [note("the processes that run have a Redis that is not named here: they say above if they miss it")]
        if not origin:
            text = "no Redis at its default address: flotilla up starts its own"
            return [note(text, "name yours by FLOTILLA_REDIS_URL or --redis")]
        return [wrong(str(cause), f"start it, or correct {origin}")]
    try:
        return [*await _server(link), *await _owner(link, settings, (await cluster()).pipeline)]
    finally:
        await link.close()


async def _server(link: RedisLink) -> list[Finding]:
    try:
        info = await link.info()
    except UserError:
        return [note(f"Redis at {link.where} answers; this user may not read INFO, so no more is known")]
    return described_redis(link.where, info)


def described_redis(at: str, info: dict[str, Any]) -> list[Finding]:
    """What a server's INFO says."""
    valkey = info.get("valkey_version")
    version = str(valkey or info.get("redis_version", ""))
    text = f"{'Valkey' if valkey else 'Redis'} {version} at {at}"
    new_enough = _at_least(version, OLDEST_REDIS)
    found = [ok(text) if new_enough else wrong(text, "Redis 6.2 or newer, or Valkey, is needed")]
    if info.get("role") not in (None, "master"):
        found.append(
            wrong("it is a replica, which takes no writes", "name the master, or its sentinels: docs/redis.md")
        )
    if info.get("cluster_enabled"):
        found.append(wrong("it is part of a Redis Cluster, which cannot be used", "use a single server or sentinels"))
    return found + _memory(info) + _persistence(info)


def _memory(info: dict[str, Any]) -> list[Finding]:
    most, used = int(info.get("maxmemory") or 0), int(info.get("used_memory") or 0)
    policy = str(info.get("maxmemory_policy") or "noeviction")
    found = []
    if policy != "noeviction":
        text = f"its maxmemory-policy is {policy}: it may drop the state and the ledger"
        fix = "set maxmemory-policy noeviction (CONFIG SET, and in its file)"
        found.append(wrong(text, fix) if most else note(f"{text}, once maxmemory is set", fix))
    if most and used > ALMOST * most:
        text = f"it uses {used >> 20:,} of {most >> 20:,} MiB; when it is full, nothing can be decided"
        found.append(wrong(text, "raise maxmemory, or remove what else is in it"))
    return found


def _persistence(info: dict[str, Any]) -> list[Finding]:
    if info.get("loading"):
        return [wrong("it is loading its data, and answers nothing else meanwhile", "wait")]
    found = []
    for field, what in (("aof_last_write_status", "append-only file"), ("rdb_last_bgsave_status", "snapshot file")):
        if str(info.get(field, "ok")) != "ok":
            text = f"it could not write its {what}, and so may refuse all writes"
            found.append(wrong(text, "is its disk full? see its log, or set stop-writes-on-bgsave-error no"))
    kept = "on" if info.get("aof_enabled") else "off"
    return found or [ok(f"its append-only file is {kept}; Flotilla needs no persistence")]


async def _owner(link: RedisLink, settings: Settings, pipeline: str) -> list[Finding]:
    keys = Keys(settings.prefix)
    try:
        (schema,) = await link.call("HMGET", keys.meta, "schema")
        check_schema(settings.prefix, schema)
        whose = await pipeline_of(link, settings.prefix)
    except UserError as cause:
        if "refuses access" in str(cause):
            return []
        return [wrong(str(cause), "use another prefix, or the release that wrote it")]
    if whose is None:
        return [ok(f"its keys {settings.prefix}:* are free")]
    if whose and pipeline and whose != pipeline:
        return [wrong(others(settings.prefix, link.where, whose))]
    return [
        ok(f"its keys {settings.prefix}:* hold the state of {'this cluster' if pipeline else whose or 'a pipeline'}")
    ]


def _at_least(version: str, least: tuple[int, int]) -> bool:
    numbers = re.match(r"(\d+)\.(\d+)", version)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= least
