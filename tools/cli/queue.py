"""flotilla queue: list pending pods, why they are pending and what would have them tried again."""

import argparse
import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from tools.cli.arguments import PodName, add_nats_flags, add_output, add_pod, at_least, pod_name
from tools.cli.output import age, plain, table

if TYPE_CHECKING:
    from shared.messages.inspection import DescribedPod, ListQueue, QueueListed
    from tools.cli.service_client import ServiceClient

STATES = ("active", "backoff", "error-backoff", "unschedulable", "gated", "in-flight", "binding")
PREEMPTION = "DefaultPreemption"
HEAD = ("POD", "STATE", "SINCE", "ATTEMPTS", "WHY", "WAITS FOR")

DESCRIPTION = """\
Lists pending pods in queue order: state, time in it, attempts, the plugins that rejected
them, and the events that would retry them. Exit code 1: no such pod, or no reply from the queue.
"""
EXAMPLES = """\
states:
  active         next to be scheduled, in this order
  backoff        rejected, and backing off before the next attempt; retried earlier when nothing is active
  error-backoff  failed with an error, and backing off
  unschedulable  rejected, and waiting for an event that may help, at most 5 minutes
  gated          held back by a scheduling gate or a PreEnqueue plugin
  in-flight      being scheduled
  binding        scheduled, and being bound

examples:
  flotilla queue --state unschedulable           pods that fit nowhere, and the events that would retry them
  flotilla queue -n shop                         the pods of a namespace
  flotilla queue shop/web-1                      everything about one pod, with its history
  flotilla queue -o json | jq '.pods[] | select(.attempts > 5) | .name'
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_pod(command, optional=True)
    command.add_argument(
        "--state", action="append", choices=STATES, metavar="STATE", help="only pods in this state; repeatable"
    )
    command.add_argument("--limit", type=at_least(1), metavar="N", help="at most N pods (default all)")
    add_output(command, "table", "json")
    add_nats_flags(command)


def run(options: argparse.Namespace) -> int:
    from shared.messages.inspection import ListQueue

    wanted = None if options.pod is None else pod_name(options)
    states = tuple(options.state or ())
    namespace, name = (options.namespace or "", "") if wanted is None else wanted
    return asyncio.run(_show(options, wanted, ListQueue(states=states, namespace=namespace, name=name)))


async def queue_pages(
    client: "ServiceClient", request: "ListQueue", limit: int | None = None
) -> "AsyncIterator[QueueListed]":
    """All pages of the queue, or those of the first `limit` pods."""
    import msgspec

    from shared.bus.subjects import QUEUE_LIST
    from shared.messages.inspection import MAX_PODS, QueueListed

    left = limit
    if limit is not None:
        request = msgspec.structs.replace(request, limit=min(limit, MAX_PODS))
    async for page in client.pages("queue", QUEUE_LIST, request, QueueListed):
        shown: QueueListed = msgspec.structs.replace(page, pods=page.pods[:left])
        yield shown
        left = None if left is None else left - len(shown.pods)
        if left == 0:
            return


async def _show(options: argparse.Namespace, wanted: PodName | None, request: "ListQueue") -> int:
    from shared.errors import ClusterError
    from tools.cli.service_client import connected

    async with connected(options) as client:
        pages = queue_pages(client, request, options.limit)
        if options.output == "json":
            print(await _as_json(pages))
        elif wanted is None:
            await _print_table(pages)
        else:
            found = [(pod, page.now) async for page in pages for pod in page.pods]
            if not found:
                raise ClusterError(
                    f"{wanted} is not in the queue: it is bound, deleted, for another scheduler, "
                    "or unreadable (see kubectl describe pod)"
                )
            for pod, now in found:
                print("\n".join(details(pod, now)))
    return 0


async def _print_table(pages: "AsyncIterator[QueueListed]") -> None:
    shown = total = 0
    async for page in pages:
        if not shown:
            counts = ", ".join(f"{count:,} {state}" for state, count in page.counts.items() if count)
            print(f"queue: {counts or 'empty'}")
        if page.pods:
            print("\n".join(table([HEAD, *(row(pod, page.now) for pod in page.pods)])))
        shown, total = shown + len(page.pods), page.total
    if shown < total:
        print(f"{total - shown:,} more")


async def _as_json(pages: "AsyncIterator[QueueListed]") -> str:
    found: dict[str, Any] = {}
    pods: list[dict[str, Any]] = []
    async for page in pages:
        found = {"now": page.now, "counts": page.counts, "total": page.total, "pods": pods}
        pods += map(plain, page.pods)
    return json.dumps(found, indent=2, ensure_ascii=False)


def row(pod: "DescribedPod", now: float) -> tuple[str, ...]:
    return (
        f"{pod.namespace}/{pod.name}",
        pod.state,
        age(now - pod.since),
        str(pod.attempts),
        _why(pod) or "-",
        _waits_for(pod, now) or "-",
    )


def details(pod: "DescribedPod", now: float) -> Iterator[str]:
    def since(at: float) -> str:
        return f"{age(now - at)} ago"

    rows = [
        ("Pod", f"{pod.namespace}/{pod.name}"),
        ("UID", pod.uid),
        ("Scheduler", pod.scheduler),
        ("Priority", str(pod.priority)),
        ("State", f"{pod.state}, since {age(now - pod.since)} ({pod.why})"),
        ("First seen", since(pod.first_seen)),
        ("Attempts", f"{pod.attempts} ({pod.rejections} rejected, {pod.errors} errors in a row)"),
        ("Rejected by", ", ".join(plugin for plugin in pod.plugins if plugin != pod.gate)),
        ("Gate", _gate(pod)),
        ("Nominated to", pod.nominated),
        ("Waits for", _waits_for(pod, now)),
        ("Condition", f"{pod.message} ({since(pod.failed_at or now)})" if pod.message else ""),
    ]
    for title, text in rows:
        if text:
            yield f"{title + ':':<14}{text}"
    for number, line in enumerate(pod.claims):
        yield f"{'' if number else 'Devices:':<14}{line}"
    yield "History:"
    for move in pod.history:
        yield f"  {since(move.at):<12}{move.state:<15}{move.why}"


def _why(pod: "DescribedPod") -> str:
    parts = [f"gate {_gate(pod)}"] if pod.gate else []
    rejecting = ", ".join(plugin for plugin in pod.plugins if plugin != pod.gate)
    parts += [rejecting] if rejecting else []
    parts += [f"nominated to {pod.nominated}"] if pod.nominated else []
    if not parts and pod.errors:
        parts.append("error")
    return "; ".join(parts)


def _gate(pod: "DescribedPod") -> str:
    plugin = "a failing PreEnqueue plugin" if pod.gate == "-" else pod.gate
    return f"{plugin}: {pod.gate_reason}" if pod.gate_reason else plugin


def _waits_for(pod: "DescribedPod", now: float) -> str:
    if pod.gate == PREEMPTION:
        return "eviction of its victims"
    if pod.backoff_until is not None:
        return f"end of its back-off, {max(0.0, pod.backoff_until - now):.1f} s"
    if pod.deadline is not None:
        what = "decision" if pod.state == "in-flight" else f"binding{f' to {pod.node}' if pod.node else ''}"
        return f"{what}, at most {max(0.0, pod.deadline - now):.0f} s"
    return "any event" if "*All" in pod.requeue_events else ", ".join(pod.requeue_events)
