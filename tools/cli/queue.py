"""flotilla queue: what waits to be scheduled, where, why, and for what."""

import argparse
import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

from tools.cli.numbers import at_least
from tools.cli.pods import PodName, add_nats_flags, add_pod, age, pod_name, table

if TYPE_CHECKING:
    from shared.messages.inspection import DescribedPod, ListQueue, QueueListed
    from tools.cli.asking import Asker

PLACES = ("active", "backoff", "error-backoff", "unschedulable", "gated", "in-flight", "binding")
PREEMPTION = "DefaultPreemption"
HEAD = ("POD", "PLACE", "SINCE", "TRIED", "WHY", "WAITS FOR")

EXAMPLES = """\
places:
  active         is taken next, in this order
  backoff        was rejected, and rests before the next attempt; taken earlier when nothing is active
  error-backoff  an attempt failed by an error; rests
  unschedulable  was rejected; waits for something that may help, 5 minutes at most
  gated          a plugin, or a scheduling gate, keeps it out
  in-flight      is being decided
  binding        is decided, and on its way to be bound

examples:
  flotilla queue --place unschedulable           what fits nowhere, and which events would have it tried again
  flotilla queue -n shop                         the pods of a namespace
  flotilla queue shop/web-1                      all about one pod, with its story
  flotilla queue -o json | jq '.pods[] | select(.attempts > 5) | .name'
"""


def add_to(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    command = commands.add_parser(
        "queue",
        help="show what waits to be scheduled, and for what",
        description="Shows the pods that wait, in queue order: where, since when, how often they were tried, what\n"
        "rejected them, and which events would have them tried again. Exit code 1: no such pod, or no queue.",
        epilog=EXAMPLES,
    )
    add_pod(command, optional=True)
    command.add_argument(
        "--place", action="append", choices=PLACES, metavar="PLACE", help="only pods there; may be repeated"
    )
    command.add_argument("--limit", type=at_least(1), metavar="N", help="pods at most (default all)")
    command.add_argument("-o", "--output", choices=("table", "json"), default="table", help="default table")
    add_nats_flags(command)
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from shared.messages.inspection import ListQueue

    wanted = None if options.pod is None else pod_name(options)
    places = tuple(options.place or ())
    namespace, name = (options.namespace or "", "") if wanted is None else wanted
    return asyncio.run(_show(options, wanted, ListQueue(places=places, namespace=namespace, name=name)))


async def listed(asker: "Asker", asked: "ListQueue", limit: int | None = None) -> "AsyncIterator[QueueListed]":
    """Page after page, until all is listed or so many pods."""
    import msgspec

    from shared.bus.subjects import QUEUE_LIST
    from shared.errors import ClusterError
    from shared.messages.inspection import MOST_PODS, QueueListed
    from tools.cli.asking import ANSWER_PATIENCE

    left = limit
    while True:
        asked = msgspec.structs.replace(asked, limit=MOST_PODS if left is None else min(left, MOST_PODS))
        page = await asker.ask("queue", QUEUE_LIST, asked, QueueListed, ANSWER_PATIENCE)
        if not page.listing:
            raise ClusterError("the queue has begun anew while it was listed; ask again")
        yield page
        left = None if left is None else left - len(page.pods)
        if not page.next or left == 0:
            return
        asked = msgspec.structs.replace(asked, listing=page.listing, after=page.next)


async def _show(options: argparse.Namespace, wanted: PodName | None, asked: "ListQueue") -> int:
    from shared.errors import ClusterError
    from tools.cli.asking import asking

    async with asking(options) as asker:
        pages = listed(asker, asked, options.limit)
        if options.output == "json":
            print(await _as_json(pages))
        elif wanted is None:
            await _print_table(pages)
        else:
            found = [(pod, page.now) async for page in pages for pod in page.pods]
            if not found:
                raise ClusterError(
                    f"{wanted} is not in the queue: it is bound, gone, not ours to schedule, "
                    "or cannot be read, which kubectl describe pod tells"
                )
            for pod, now in found:
                print("\n".join(in_full(pod, now)))
    return 0


async def _print_table(pages: "AsyncIterator[QueueListed]") -> None:
    shown = total = 0
    async for page in pages:
        if not shown:
            counts = ", ".join(f"{count:,} {place}" for place, count in page.counts.items() if count)
            print(f"the queue: {counts or 'empty'}")
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


def plain(pod: "DescribedPod") -> dict[str, Any]:
    """With every field, also those that say nothing."""
    fields = {field: getattr(pod, field) for field in pod.__struct_fields__}
    return fields | {"story": [{"at": move.at, "place": move.place, "why": move.why} for move in pod.story]}


def row(pod: "DescribedPod", now: float) -> tuple[str, ...]:
    return (
        f"{pod.namespace}/{pod.name}",
        pod.place,
        age(now - pod.since),
        str(pod.attempts),
        _why(pod) or "-",
        _waits_for(pod, now) or "-",
    )


def in_full(pod: "DescribedPod", now: float) -> Iterator[str]:
    def since(at: float) -> str:
        return f"{age(now - at)} ago"

    rows = [
        ("Pod", f"{pod.namespace}/{pod.name}"),
        ("UID", pod.uid),
        ("Scheduler", pod.scheduler),
        ("Priority", str(pod.priority)),
        ("Place", f"{pod.place}, since {age(now - pod.since)} ({pod.why})"),
        ("First seen", since(pod.first_seen)),
        ("Tried", f"{_times(pod.attempts)}; rejected {_times(pod.rejections)}, errors in a row: {pod.errors}"),
        ("Rejected by", ", ".join(plugin for plugin in pod.plugins if plugin != pod.gate)),
        ("Gate", _gate(pod)),
        ("Nominated to", pod.nominated),
        ("Waits for", _waits_for(pod, now)),
        ("Said last", f"{pod.message} ({since(pod.said_at or now)})" if pod.message else ""),
    ]
    for title, text in rows:
        if text:
            yield f"{title + ':':<14}{text}"
    yield "Story:"
    for move in pod.story:
        yield f"  {since(move.at):<12}{move.place:<15}{move.why}"


def _why(pod: "DescribedPod") -> str:
    parts = [f"gate {_gate(pod)}"] if pod.gate else []
    rejecting = ", ".join(plugin for plugin in pod.plugins if plugin != pod.gate)
    parts += [rejecting] if rejecting else []
    parts += [f"nominated to {pod.nominated}"] if pod.nominated else []
    if not parts and pod.errors:
        parts.append("an error")
    return "; ".join(parts)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _gate(pod: "DescribedPod") -> str:
    return "a PreEnqueue plugin that breaks down" if pod.gate == "-" else pod.gate


def _waits_for(pod: "DescribedPod", now: float) -> str:
    if pod.gate == PREEMPTION:
        return "the victims of its preemption being told to go"
    if pod.rests_until is not None:
        return f"the end of its rest, {max(0.0, pod.rests_until - now):.1f} s"
    if pod.deadline is not None:
        what = "a decision" if pod.place == "in-flight" else f"being bound{f' to {pod.node}' if pod.node else ''}"
        return f"{what}, {max(0.0, pod.deadline - now):.0f} s at most"
    return "any event" if "*All" in pod.awaits else ", ".join(pod.awaits)
