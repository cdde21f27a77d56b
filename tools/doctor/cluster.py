"""The API server: reachable, of a version that is supported, its clock, rights, APIs, and who holds the Leases."""

import os
import re
import time
from collections.abc import Collection, Iterator
from datetime import datetime
from typing import NamedTuple, TypeVar

import msgspec

from services.watcher.resources import RESOURCES
from shared.config.settings import ApiSettings
from shared.errors import ClusterError, UserError
from shared.kube.access import ClientConnection
from shared.kube.client import KubeClient
from shared.kube.election import Record
from shared.kube.errors import Refused, Unauthorized, Unreachable
from shared.kube.lease import Lease
from shared.messages.watch import Kind
from shared.runtime.api_clock import LARGEST_API_OFFSET, offset_from_date
from tools.doctor.findings import Finding, note, ok, wrong
from tools.doctor.rights import check_rights
from tools.status import LED

PATIENCE = 5.0
"""Seconds for one call."""
OLDEST, NEWEST = 30, 36
"""Minor versions of the API server that are supported. Of the next one, APIs of pod groups are read as well."""
IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
KUBE_SCHEDULER = ("kube-system", "kube-scheduler")
DEFAULT_SCHEDULER = "default-scheduler"
T = TypeVar("T")
WITHOUT = {
    "resource.k8s.io": "pods with claims of devices wait",
    "scheduling.k8s.io": "there are no pod groups of this kind",
    "scheduling.x-k8s.io": "there are no pod groups of this kind",
}
"""What follows if the server lacks a group; without the other ones, their objects count as not there."""


class ClusterOptions(NamedTuple):
    """`schedulers`: that this configuration serves. `prefix`: of the Leases' names."""

    api: ApiSettings
    given: ClientConnection
    prefix: str
    lease_namespace: str
    schedulers: Collection[str]


class ClusterReport(NamedTuple):
    """`pipeline`: the identity of a pipeline in this cluster; empty if it is not known. `networks`: the NATS that live
    leaders name in their Leases, with the holder.
    """

    findings: list[Finding]
    pipeline: str = ""
    networks: tuple[tuple[str, str], ...] = ()


class _Version(msgspec.Struct, frozen=True):
    git: str = msgspec.field(name="gitVersion", default="")


class _Resource(msgspec.Struct, frozen=True):
    name: str = ""


class _Resources(msgspec.Struct, frozen=True):
    resources: list[_Resource] = []


class _Metadata(msgspec.Struct, frozen=True):
    uid: str = ""


class _Namespace(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


def names_a_server(api: ApiSettings, given: ClientConnection) -> bool:
    return bool(api.server or api.kubeconfig or given.kubeconfig or os.environ.get(IN_CLUSTER))


async def check_cluster(options: ClusterOptions) -> ClusterReport:
    if not names_a_server(options.api, options.given):
        return ClusterReport(
            [
                note(
                    "no API server is named: flotilla up simulates one",
                    "name yours by --kubeconfig FILE or --server URL",
                )
            ]
        )
    try:
        client = await KubeClient.open(options.api, given=options.given, agent="flotilla-doctor")
    except UserError as cause:
        return ClusterReport([wrong(str(cause), "correct the kubeconfig, or name another by --kubeconfig")])
    try:
        return await _check(client, options)
    finally:
        await client.close()


async def _check(client: KubeClient, options: ClusterOptions) -> ClusterReport:
    began = time.time()
    try:
        answer = await client.call("GET", "/version", timeout=PATIENCE)
    except Unreachable as cause:
        return ClusterReport([wrong(str(cause), *_why_unreachable(str(cause)))])
    except Unauthorized as cause:
        return ClusterReport([wrong(str(cause), "its token or certificate is wrong or expired: log in again")])
    took = time.time() - began
    findings = [_version(client.server, _decoded(answer.body, _Version).git, took)]
    findings.append(_clock(client.date, began))
    served = await _served_groups(client)
    findings += _missing_apis(served)
    absent = {_group(each.path) for each in RESOURCES.values()} - {_group(path) for path in served}
    findings += await check_rights(client, options.lease_namespace, options.prefix, absent)
    uid = await _cluster_uid(client)
    leases, networks = await _leases(client, options)
    return ClusterReport([*findings, *leases], f"{uid}/{options.lease_namespace}" if uid else "", networks)


def _why_unreachable(text: str) -> tuple[str, ...]:
    if "certificate" in text.lower():
        return ("the server's certificate and the kubeconfig's certificate-authority do not match",)
    return ("is this the right address, and does kubectl reach it from this machine?",)


def _version(server: str, git: str, took: float) -> Finding:
    minor = re.match(r"v1\.(\d+)", git)
    text = f"{server} answers in {took * 1000:.0f} ms: {git or 'its version is not known'}"
    if minor is None or not OLDEST <= int(minor[1]) <= NEWEST:
        tried = f"tried with v1.{OLDEST} to v1.{NEWEST}; others may work"
        return note(text, f"{tried}; pod groups are read as v1.{NEWEST + 1} has them, too")
    return ok(text)


def _clock(date: str | None, began: float) -> Finding:
    ahead = offset_from_date(date, began, time.time())
    if ahead is None:
        return note("clock: the API server does not say what time it has")
    if abs(ahead) <= LARGEST_API_OFFSET:
        return ok("clock: the API server's, within half a second" if abs(ahead) <= 0.5 else f"clock: {ahead:+.1f} s")
    text = f"clock: this machine's is {abs(ahead):.1f} s {'behind' if ahead > 0 else 'ahead of'} the API server's"
    return wrong(text, "synchronise both with NTP: services are not ready with a wrong clock")


async def _served_groups(client: KubeClient) -> set[str]:
    """The paths of RESOURCES that the server has, in any version."""
    folders = {path.rpartition("/")[0] for each in RESOURCES.values() for path in (each.path, *each.older_paths)}
    found: set[str] = set()
    for folder in sorted(folders):
        answer = await client.call("GET", folder, timeout=PATIENCE)
        if answer.ok:
            names = {each.name for each in _decoded(answer.body, _Resources).resources}
            found |= {f"{folder}/{name}" for name in names}
    return found


def _missing_apis(served: set[str]) -> Iterator[Finding]:
    missing: dict[str, list[str]] = {}
    for kind, each in RESOURCES.items():
        if not served.intersection((each.path, *each.older_paths)) and kind is not Kind.COMPOSITE_POD_GROUP:
            missing.setdefault(_group(each.path), []).append(each.path.rpartition("/")[2])
    for group, plurals in missing.items():
        what = f"{', '.join(plurals)}{f' of {group}' if group else ''}"
        if not group:
            yield wrong(f"APIs: the server has no {what}", "is this an API server of Kubernetes?")
        else:
            yield note(f"APIs: the server has no {what}: {WITHOUT.get(group, 'they count as not there')}")
    if not missing:
        yield ok("APIs: all kinds that plugins read")


def _group(path: str) -> str:
    return path.split("/")[2] if path.startswith("/apis/") else ""


async def _cluster_uid(client: KubeClient) -> str:
    """Empty if it may not be read: `check_rights` says so."""
    try:
        raw = await client.get("/api/v1/namespaces/kube-system")
    except Refused:
        return ""
    return "" if raw is None else _decoded(raw, _Namespace).metadata.uid


async def _leases(client: KubeClient, options: ClusterOptions) -> tuple[list[Finding], tuple[tuple[str, str], ...]]:
    findings: list[Finding] = []
    networks: list[tuple[str, str]] = []
    held: list[str] = []
    for service in LED:
        record = await _lease(client, options.lease_namespace, f"{options.prefix}-{service}")
        if isinstance(record, Finding):
            return [record], ()
        if record is not None and _is_live(record):
            held.append(f"{service} by {record.holder}")
            if record.network:
                networks.append((record.network, record.holder))
    names = f"Leases {options.prefix}-* in namespace {options.lease_namespace}"
    findings.append(ok(f"{names}: held for {'; '.join(held)}" if held else f"{names}: free"))
    other = await _lease(client, *KUBE_SCHEDULER)
    if isinstance(other, Record) and _is_live(other) and DEFAULT_SCHEDULER in options.schedulers:
        text = f"kube-scheduler runs as well ({other.holder}), and this configuration serves {DEFAULT_SCHEDULER}"
        fix = "name another scheduler in profiles[].schedulerName, or stop kube-scheduler: docs/migrate.md"
        findings.append(note(text, fix))
    return findings, tuple(networks)


async def _lease(client: KubeClient, namespace: str, name: str) -> Record | Finding | None:
    try:
        return await Lease(client, namespace, name, "", 1.0).look(PATIENCE)
    except ClusterError as cause:
        return wrong(str(cause), "grant the right to get Leases, see the rights above")


def _is_live(record: Record) -> bool:
    """Whether its holder has renewed it in time, roughly: clocks may differ by seconds."""
    try:
        renewed = datetime.fromisoformat(record.renewed).timestamp()
    except ValueError:
        return False
    return bool(record.holder) and time.time() - renewed < record.duration + LARGEST_API_OFFSET


def _decoded(raw: bytes, type_: type[T]) -> T:
    """With defaults where the answer is not of this form."""
    try:
        return msgspec.json.decode(raw, type=type_)
    except (msgspec.DecodeError, ValueError):
        return type_()
