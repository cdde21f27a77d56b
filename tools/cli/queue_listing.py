"""The pods of the queue, page by page, and how `flotilla queue` shows them."""

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING

from tools.cli.output import age
from tools.cli.words import IN_FLIGHT, first_events, gate, reasons, waits_for, why_pending

if TYPE_CHECKING:
    from shared.messages.inspection import DescribedPod, ListQueue, QueueListed
    from tools.cli.service_client import ServiceClient

NARROW = 100
"""Columns of a terminal from which on a line has room for what a pod waits for."""
SLOW = 3.0
"""Seconds in flight or binding after which a pod may be held up."""
HEAD = ("POD", "STATE", "SINCE", "ATTEMPTS", "WHY", "WAITS FOR")
WIDE_HEAD = (*HEAD[:4], "PRIORITY", "GANG", "SCHEDULER", "NOMINATED", "PLUGINS", "WHY", "EVENTS")


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


def summary(page: "QueueListed") -> str:
    counts = ", ".join(f"{count:,} {state}" for state, count in page.counts.items() if count)
    return f"queue: {counts or 'empty'}"


def no_match(request: "ListQueue") -> str:
    """The line about a queue that has pods, but none of those that were asked for."""
    namespace = f" in namespace {request.namespace}" if request.namespace else ""
    states = f" that is {' or '.join(request.states)}" if request.states else ""
    return f"none{namespace}{states}"


def is_slow(pods: "Iterable[DescribedPod]", now: float) -> bool:
    """Whether one of the pods is being decided or bound for so long that something may hold it up."""
    return any(pod.state in IN_FLIGHT and now - pod.since > SLOW for pod in pods)


def rows(page: "QueueListed", *, wide: bool = False, width: int | None = None) -> list[tuple[str, ...]]:
    """With the heads of the columns. A narrow terminal has no room for what pods wait for."""
    if wide:
        return [WIDE_HEAD, *(wide_row(pod, page.now) for pod in page.pods)]
    found = [HEAD, *(row(pod, page.now) for pod in page.pods)]
    return [each[:-1] for each in found] if width is not None and width < NARROW else found


def row(pod: "DescribedPod", now: float) -> tuple[str, ...]:
    return (
        f"{pod.namespace}/{pod.name}",
        pod.state,
        age(now - pod.since),
        str(pod.attempts),
        why_pending(pod) or "-",
        first_events(waits_for(pod, now)) or "-",
    )


def wide_row(pod: "DescribedPod", now: float) -> tuple[str, ...]:
    """Plugins and events by kube-scheduler's names."""
    return (
        *row(pod, now)[:4],
        str(pod.priority),
        pod.gang or "-",
        pod.scheduler,
        pod.nominated or "-",
        ",".join(pod.plugins) or "-",
        why_pending(pod) or "-",
        ",".join(pod.requeue_events or waits_for(pod, now)) or "-",
    )


def details(pod: "DescribedPod", now: float) -> Iterator[str]:
    def since(at: float) -> str:
        return f"{age(now - at)} ago"

    message = f"{pod.message} ({since(pod.failed_at or now)})" if pod.message else ""
    titled = [
        ("Pod", f"{pod.namespace}/{pod.name}"),
        ("UID", pod.uid),
        ("Scheduler", pod.scheduler),
        ("Priority", str(pod.priority)),
        ("State", f"{pod.state}, since {age(now - pod.since)} ({pod.why})"),
        ("Gang", pod.gang and f"{pod.gang} (see flotilla gang {pod.gang})"),
        ("First seen", since(pod.first_seen)),
        ("Attempts", f"{pod.attempts} ({pod.rejections} rejected, {pod.errors} errors in a row)"),
        ("Why", ", ".join(map(str, reasons(pod.message)))),
        ("Rejected by", ", ".join(plugin for plugin in pod.plugins if plugin != pod.gate)),
        ("Gate", gate(pod)),
        ("Nominated to", pod.nominated),
        ("Waits for", ", ".join(waits_for(pod, now))),
        ("Events", ", ".join(pod.requeue_events)),
        ("Condition", message),
    ]
    for title, text in titled:
        if text:
            yield f"{title + ':':<14}{text}"
    for number, line in enumerate(pod.claims):
        yield f"{'' if number else 'Devices:':<14}{line}"
    yield "History:"
    for move in pod.history:
        yield f"  {since(move.at):<12}{move.state:<15}{move.why}"
