"""PrioritySort orders the queue by priority, then by the time of arrival."""

from shared.framework.plugin import PodParts, QueueSortPlugin
from shared.model.objects import Pod


class PrioritySort(QueueSortPlugin):
    name = "PrioritySort"
    reads_of_pod = PodParts.TEMPLATE

    def sort_key(self, pod: Pod, queued_at: float) -> tuple[int, float]:
        return -pod.priority, queued_at
