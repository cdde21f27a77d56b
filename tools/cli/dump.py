"""flotilla dump: write the state of queue and snapshot, and compare it with the API server."""

import argparse
import asyncio
import json
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tools.cli.arguments import add_nats_flags
from tools.cli.output import plain

if TYPE_CHECKING:
    from shared.messages.inspection import CacheCompared, Difference
    from tools.cli.service_client import ServiceClient

STDOUT = "-"
MAX_SHOWN = 10
"""Differences that are named on standard error."""
KINDS = ("queue", "node", "assumed")

DESCRIPTION = """\
Writes the queue, the cache and the ledger of assumed pods, and compares cache and queue with the API
server. Exit code 1: they differ, or a service does not reply. Closed nodes, which get no more pods because
an object there is unreadable, are named on standard error and do not change the exit code.
"""
EXAMPLES = """\
Each line is a JSON object. On standard output it includes a `kind`:
  queue       a pod in the queue: its state, why, and what it waits for
  node        a node in the snapshot's cache: requested and allocatable resources, its pods, nominated pods
  assumed     a pod in the ledger: scheduled, but not yet seen on its node
  summary     counts, and the differences between the cache and the API server
With a folder these are the files queue.jsonl, node.jsonl, assumed.jsonl and summary.json, and
live_state.msgpack and pods_on_nodes.msgpack: what decisions depend on, with all pods but without
their environment, for other commands.

examples:
  flotilla dump | jq 'select(.kind == "summary")'
  flotilla dump --output before-the-restart
  kill -USR2 PID                                   of queue or snapshot: log a short version
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--output", default=STDOUT, metavar="DIR", help="folder to write to; - is standard output (default)"
    )
    add_nats_flags(command)


def run(options: argparse.Namespace) -> int:
    return asyncio.run(_dump(options))


class Sink:
    """Writes the lines of each kind."""

    def __init__(self, files: Mapping[str, IO[str]] | None) -> None:
        self._files = files
        self.counts = dict.fromkeys(KINDS, 0)
        self.closed: dict[str, str] = {}
        """By node: why it gets no more pods."""

    def put(self, kind: str, fields: dict[str, Any]) -> None:
        self.counts[kind] += 1
        if self._files is None:
            print(json.dumps({"kind": kind, **fields}, ensure_ascii=False))
        else:
            print(json.dumps(fields, ensure_ascii=False), file=self._files[kind])


@contextmanager
def sink_for(output: str) -> Iterator[Sink]:
    """UserError if the files cannot be written."""
    from shared.errors import UserError

    if output == STDOUT:
        yield Sink(None)
        return
    with ExitStack() as stack:
        try:
            Path(output).mkdir(parents=True, exist_ok=True)
            files = {kind: stack.enter_context((Path(output) / f"{kind}.jsonl").open("w")) for kind in KINDS}
        except OSError as error:
            raise UserError(f"--output: cannot write {error.filename}: {error.strerror}") from error
        yield Sink(files)


async def _dump(options: argparse.Namespace) -> int:
    from tools.cli.service_client import connected

    async with connected(options) as client:
        with sink_for(options.output) as sink:
            summary = await _write_all(client, sink)
        missing = "" if options.output == STDOUT else await _write_live_state(client, Path(options.output))
        compared, pending = await _compare(client)
    summary["comparison"] = {
        name: value for name, value in plain(compared).items() if not name.startswith("waiting_")
    } | {"pending": plain(pending)}
    if options.output == STDOUT:
        print(json.dumps({"kind": "summary", **summary}, ensure_ascii=False))
    else:
        (Path(options.output) / "summary.json").write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
        counts = ", ".join(f"{count:,} {kind}" for kind, count in sink.counts.items())
        print(f"{options.output}: {counts}", file=sys.stderr)
    for name, why in sorted(sink.closed.items()):
        print(f"node {name} is closed and gets no more pods: {why}", file=sys.stderr)
    if missing:
        print(f"the live state is not part of the dump: {missing}", file=sys.stderr)
    for line in verdict(compared, pending):
        print(line, file=sys.stderr)
    return 1 if compared.failure or compared.differences or pending or missing else 0


async def _compare(client: "ServiceClient") -> "tuple[CacheCompared, list[Difference]]":
    """The snapshot's comparison, and how the queue differs from the pending pods that it listed.

    Pods on their way differ, too, so what differs is compared again, and only what differs both times counts.
    """
    from shared.bus.subjects import SNAPSHOT_LIST
    from shared.messages.inspection import CacheCompared, CompareCache, Difference
    from tools.cli.service_client import COMPARISON_TIMEOUT

    found: list[Difference] | None = None
    while True:
        compared = await client.request("snapshot", SNAPSHOT_LIST, CompareCache(), CacheCompared, COMPARISON_TIMEOUT)
        queued, unreadable, schedulers = await _queued(client)
        differing = pending_differences(compared, queued | dict.fromkeys(unreadable, ""), schedulers)
        if found is not None or not differing:
            return compared, differing if found is None else [each for each in differing if each in found]
        found = differing


async def _queued(client: "ServiceClient") -> tuple[dict[str, str], dict[str, str], set[str]]:
    """Pods that wait for a decision, by uid; why others cannot be read; and the profiles' names."""
    from shared.messages.inspection import ListQueue
    from tools.cli.queue_listing import queue_pages
    from tools.cli.words import IN_FLIGHT

    pods: dict[str, str] = {}
    unreadable: dict[str, str] = {}
    schedulers: set[str] = set()
    async for page in queue_pages(client, ListQueue()):
        schedulers |= {*page.schedulers}
        unreadable |= page.unreadable
        pods |= {pod.uid: f"{pod.namespace}/{pod.name}" for pod in page.pods if pod.state not in IN_FLIGHT}
        pods |= {pod.uid: "" for pod in page.pods if pod.state in IN_FLIGHT}
    return pods, unreadable, schedulers


def pending_differences(
    compared: "CacheCompared", queued: Mapping[str, str], schedulers: Container[str]
) -> "list[Difference]":
    """`queued`: names by uid; empty for pods that need not be listed, as they may be bound by now or are unreadable."""
    from shared.messages.inspection import Difference

    if compared.failure or compared.waiting_more:
        return []
    listed = {pod.uid: pod.key for pod in compared.waiting_pods if pod.scheduler in schedulers}
    found = [Difference("pending", "missing", key, uid) for uid, key in listed.items() if uid not in queued]
    found += [Difference("pending", "redundant", key, uid) for uid, key in queued.items() if key and uid not in listed]
    return sorted(found, key=lambda each: (each.what, each.name))


async def _write_live_state(client: "ServiceClient", folder: Path) -> str:
    """Why there is none, if so."""
    from shared.errors import ClusterError, UserError
    from tools import live_state

    try:
        live_state.save(await live_state.load(client), folder)
        live_state.save_pods(await live_state.pods_on_all(client), folder)
    except ClusterError as cause:
        return str(cause)
    except OSError as error:
        raise UserError(f"--output: cannot write {error.filename}: {error.strerror}") from error
    return ""


def verdict(compared: "CacheCompared", pending: "Sequence[Difference]") -> Iterator[str]:
    """What differs, by name, up to a limit."""
    if compared.failure:
        yield f"cannot compare the cache with the API server: {compared.failure}"
        return
    count = len(compared.differences) + compared.more
    cluster = f"the {compared.nodes:,} nodes and {compared.pods:,} pods of the API server"
    yield f"the cache differs from {cluster} in {count:,} objects" if count else f"the cache matches {cluster}"
    yield from map(difference, compared.differences[:MAX_SHOWN])
    if count > MAX_SHOWN:
        yield f"  and {count - MAX_SHOWN:,} more: see the summary"
    if compared.waiting_more:
        most = len(compared.waiting_pods)
        yield f"the queue is not compared: more than {most:,} pods are pending"
        return
    if pending:
        yield f"the queue differs from the pending pods of the API server in {len(pending):,} pods"
    yield from map(difference, pending[:MAX_SHOWN])
    if len(pending) > MAX_SHOWN:
        yield f"  and {len(pending) - MAX_SHOWN:,} more: see the summary"


def difference(each: "Difference") -> str:
    held = "queued" if each.kind == "pending" else "cached"
    what = "node" if each.kind == "node" else "pod"
    on_node = f" on node {each.listed_on or each.cached_on}" if each.kind == "pod" else ""
    match each.what:
        case "missing":
            how = f"listed{on_node}, not {held}"
        case "redundant":
            how = f"{held}{on_node}, not listed"
        case _:
            how = f"listed on node {each.listed_on}, {held} on node {each.cached_on}"
    return f"  {what} {each.name}: {how}"


async def _write_all(client: "ServiceClient", sink: Sink) -> dict[str, Any]:
    """Write all pods and nodes; returns the counts for the summary."""
    from shared.bus.subjects import SNAPSHOT_LIST
    from shared.messages.inspection import CacheListed, LedgerListed, ListCache, ListLedger, ListQueue
    from tools.cli.queue_listing import queue_pages

    queued: dict[str, int] = {}
    async for page in queue_pages(client, ListQueue()):
        queued = page.counts
        for queued_pod in page.pods:
            sink.put("queue", plain(queued_pod))
    cache: dict[str, Any] = {}
    async for page in client.pages("snapshot", SNAPSHOT_LIST, ListCache(), CacheListed):
        cache = {"epoch": page.epoch, "seq": page.seq, **page.counts}
        for node in page.nodes:
            sink.put("node", plain(node))
            if node.closed:
                sink.closed[node.name] = node.closed
    async for page in client.pages("snapshot", SNAPSHOT_LIST, ListLedger(), LedgerListed):
        for assumed_pod in page.pods:
            sink.put("assumed", plain(assumed_pod))
    return {"queue": queued, "cache": cache, "assumed": sink.counts["assumed"]}
