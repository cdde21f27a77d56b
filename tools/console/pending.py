"""What the queue holds, as the page shows it: pods that are not bound, and how many wait for the same reason."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from shared.messages.inspection import DescribedPod
from tools.cli.words import reasons

MAX_PODS = 20_000
"""Pending pods that are listed; of more, the first in the queue."""
MAX_REASONS = 50


class CommonReason(NamedTuple):
    """Why pods are pending. `nodes`: the most nodes that rejected one of them for it; 0 if it is not about nodes."""

    text: str
    plugins: list[str]
    pods: int
    nodes: int


@dataclass(slots=True)
class PendingPods:
    """As of `at` (Unix time). `total` may be more than are listed."""

    at: float = 0.0
    total: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    pods: dict[str, DescribedPod] = field(default_factory=dict)
    """By uid, in the order of the queue."""
    reasons: list[CommonReason] = field(default_factory=list)
    """Of the pods that are listed, the most frequent first."""

    def take(self, pods: dict[str, DescribedPod], total: int) -> None:
        self.pods, self.total = pods, total
        counted: Counter[str] = Counter()
        nodes: Counter[str] = Counter()
        plugins: defaultdict[str, set[str]] = defaultdict(set)
        for text, count, pod in self._each_reason():
            counted[text] += 1
            nodes[text] = max(nodes[text], count)
            plugins[text].update(pod.plugins)
        self.reasons = [
            CommonReason(text, sorted(plugins[text]), n, nodes[text]) for text, n in counted.most_common(MAX_REASONS)
        ]

    def _each_reason(self) -> Iterator[tuple[str, int, DescribedPod]]:
        for pod in self.pods.values():
            if pod.gate:
                yield pod.gate_reason or f"held back by {pod.gate}", 0, pod
            elif pod.state != "binding":
                for reason in reasons(pod.message):
                    yield reason.text, reason.nodes, pod


def matching(pods: Iterable[DescribedPod], text: str, state: str) -> Iterator[DescribedPod]:
    """Pods of this state, if one is named, with this text in their name, their node or their last message."""
    for pod in pods:
        if state in ("", pod.state) and (
            text in f"{pod.namespace}/{pod.name}" or text in pod.node or text in pod.nominated or text in pod.message
        ):
            yield pod
