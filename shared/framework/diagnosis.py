"""Why no node fits, counted, and the sentence that says it."""

from collections import Counter
from collections.abc import Iterable

from flotilla.results import Status
from shared.messages.evaluation import Rejections

NO_NODES = "no nodes available to schedule pods"


def merge_rejections(parts: Iterable[Rejections]) -> list[Rejections]:
    counted: Counter[Status] = Counter()
    for part in parts:
        counted[part.status] += part.nodes
    return [Rejections(status, nodes) for status, nodes in counted.items()]


def unfit_message(nodes: int, pre_filter: Status | None, rejections: Iterable[Rejections]) -> str:
    """The message of the FailedScheduling event and of the PodScheduled condition.

    Autoscalers parse it; its form is part of what people rely on.
    """
    if nodes == 0:
        return NO_NODES
    head = f"0/{nodes} nodes are available:"
    if pre_filter is not None:
        return f"{head} {pre_filter.message}."
    histogram: Counter[str] = Counter()
    for part in rejections:
        for reason in part.status.reasons:
            histogram[reason] += part.nodes
    if not histogram:
        return head
    return f"{head} {', '.join(sorted(f'{count} {reason}' for reason, count in histogram.items()))}."
