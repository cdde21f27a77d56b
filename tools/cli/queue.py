"""flotilla queue: list pending pods, why they are pending and what would have them tried again."""

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from tools.cli.arguments import PodName, add_nats_flags, add_output, add_pod, at_least, pod_name
from tools.cli.output import plain, table, terminal_width
from tools.cli.queue_listing import details, is_slow, no_match, queue_pages, rows, summary

if TYPE_CHECKING:
    from shared.messages.inspection import ListQueue, QueueListed
    from tools.cli.service_client import ServiceClient

STATES = ("active", "backoff", "error-backoff", "unschedulable", "gated", "in-flight", "binding")
GROUPINGS = ("reason", "namespace", "owner")

DESCRIPTION = """\
Lists pending pods in queue order: state, time in it, attempts, why they are pending, and what would have them tried
again. On a terminal the table fits its width; elsewhere nothing is cut. Exit code 1: no such pod is pending, or no
reply from the queue.
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
  flotilla queue --state unschedulable           pods that fit nowhere, and what would have them tried again
  flotilla queue --group-by reason               how many pods each reason keeps, and what they ask for
  flotilla queue --watch                         follow it; on a terminal in place, elsewhere each change is a line
  flotilla queue -n shop -o wide                 a namespace, with plugins, events, priorities and nominations
  flotilla queue shop/web-1                      everything about one pod, with its history
  flotilla queue -o json | jq '.pods[] | select(.attempts > 5) | .name'
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    add_pod(command, optional=True)
    command.add_argument(
        "--state", action="append", choices=STATES, metavar="STATE", help="only pods in this state; repeatable"
    )
    command.add_argument("--limit", type=at_least(1), metavar="N", help="at most N pods (default all)")
    command.add_argument(
        "--group-by", choices=GROUPINGS, metavar="WHAT", help=f"count pods by {', '.join(GROUPINGS)} instead"
    )
    command.add_argument("-w", "--watch", action="store_true", help="go on showing it until Ctrl-C")
    add_output(command, "table", "wide", "json")
    add_nats_flags(command)


def run(options: argparse.Namespace) -> int:
    from shared.errors import UserError
    from shared.messages.inspection import ListQueue

    if options.watch and (options.output == "json" or options.group_by or options.pod):
        raise UserError("--watch: shows the list of pods only, as a table or wide")
    if options.group_by and (options.pod or options.limit):
        raise UserError("--group-by: counts all pods, so it takes neither a pod nor --limit")
    wanted = None if options.pod is None else pod_name(options)
    states = tuple(options.state or ())
    namespace, name = (options.namespace or "", "") if wanted is None else wanted
    request = ListQueue(states=states, namespace=namespace, name=name, bodies=options.group_by is not None)
    return asyncio.run(_show(options, wanted, request))


async def _show(options: argparse.Namespace, wanted: PodName | None, request: "ListQueue") -> int:
    from tools.cli.service_client import connected

    async with connected(options) as client:
        if options.group_by:
            from tools.cli.queue_groups import print_groups

            await print_groups(client, request, options.group_by, as_json=options.output == "json")
            return 0
        if options.watch:
            from tools.cli.queue_watch import watch

            await watch(client, request, options.limit, wide=options.output == "wide")
            return 0
        pages = queue_pages(client, request, options.limit)
        if options.output == "json":
            print(await _as_json(pages))
        elif wanted is None:
            await _print_table(client, pages, request, wide=options.output == "wide")
        else:
            await _print_pod(client, pages, wanted)
    return 0


async def _print_pod(client: "ServiceClient", pages: "AsyncIterator[QueueListed]", wanted: PodName) -> None:
    from tools.status import not_ready

    last: QueueListed | None = None
    found = False
    async for page in pages:
        last = page
        for pod in page.pods:
            found = True
            why = await not_ready(client.bus) if is_slow([pod], page.now) else []
            print("\n".join([*why, *details(pod, page.now)]))
    if not found and last is not None:
        await _explain_absence(client, last, wanted)


async def _explain_absence(client: "ServiceClient", page: "QueueListed", wanted: PodName) -> None:
    """Raises ClusterError, which says where the pod is, as far as the services know."""
    from shared.bus.subjects import SNAPSHOT_LIST
    from shared.errors import ClusterError
    from shared.messages.inspection import FindPod, PodFound

    if page.foreign:
        known = ", ".join(page.schedulers)
        raise ClusterError(
            f"{wanted} is not in the queue: its schedulerName is {page.foreign}, and the profiles are {known}"
        )
    found = await client.request("snapshot", SNAPSHOT_LIST, FindPod(*wanted), PodFound)
    if found.assumed:
        raise ClusterError(f"{wanted} is not in the queue: it is being bound to node {found.node}")
    if found.node:
        raise ClusterError(f"{wanted} is not in the queue: it is on node {found.node}")
    raise ClusterError(
        f"{wanted} is not in the queue and on no node: it does not exist, has finished, or cannot be read "
        "(see kubectl describe pod)"
    )


async def _print_table(
    client: "ServiceClient", pages: "AsyncIterator[QueueListed]", request: "ListQueue", *, wide: bool
) -> None:
    from tools.status import not_ready

    width = terminal_width(sys.stdout)
    shown = total = 0
    slow = False
    async for page in pages:
        if not shown:
            print(summary(page))
        if not page.total and any(page.counts.values()):
            print(no_match(request))
        slow = slow or is_slow(page.pods, page.now)
        if page.pods:
            print("\n".join(table(rows(page, wide=wide, width=width), width)))
        shown, total = shown + len(page.pods), page.total
    if shown < total:
        print(f"{total - shown:,} more")
    if slow:
        for why in await not_ready(client.bus):
            print(why)


async def _as_json(pages: "AsyncIterator[QueueListed]") -> str:
    found: dict[str, Any] = {}
    pods: list[dict[str, Any]] = []
    async for page in pages:
        found = {"now": page.now, "counts": page.counts, "total": page.total, "pods": pods}
        pods += map(plain, page.pods)
    return json.dumps(found, indent=2, ensure_ascii=False)
