"""PrioritySort orders the queue by priority, then by the time of arrival."""

from shared.framework.plugin import QueueSortPlugin
from shared.model.objects import Pod


class PrioritySort(QueueSortPlugin):
    name = "PrioritySort"

    def sort_key(self, pod: Pod, queued_at: float) -> tuple[int, float]:
        return -pod.priority, queued_at
