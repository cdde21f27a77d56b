"""What the cycle works out about a pod once, when the queue hands it in."""

from collections.abc import Mapping

from flotilla.results import Status, error
from services.cycle.events import Failed
from services.cycle.extending import Extending
from services.cycle.gang import bound_together
from services.cycle.walk import QueuedPod
from shared.errors import FlotillaError
from shared.framework.classify import Classifier
from shared.framework.podreads import PluginFailed
from shared.framework.profile import Framework
from shared.messages.queue import Gang
from shared.model.load import PodLoad
from shared.model.objects import Pod, encode_msgpack
from shared.model.resources import filter_requests


class Intake:
    def __init__(self, frameworks: Mapping[str, Framework], extending: Extending) -> None:
        self._frameworks = frameworks
        self._extending = extending
        self._classifiers = {name: Classifier(f) for name, f in frameworks.items()}

    def take(self, pod: Pod, gang: Gang | None) -> QueuedPod | Failed:
        """It is to be decided, or cannot be read."""
        framework = self._frameworks.get(pod.spec.scheduler_name)
        if framework is None:
            reason = f"spec.schedulerName: there is no profile {pod.spec.scheduler_name!r}"
            return Failed(pod.uid, error(f"Pod {pod.key}: {reason}"))
        try:
            classified = self._classifiers[framework.name].classify(pod)
        except Exception as cause:
            return Failed(pod.uid, _unreadable(pod, cause))
        size = len(encode_msgpack(pod)) if self.goes_along(pod) else 0
        class_id = self._extending.class_of(classified.class_id, pod)
        load, asks = classified.load, _asks(pod, classified.load)
        return QueuedPod(pod, class_id, load, framework.name, size, bound_together(gang), asks)

    def goes_along(self, pod: Pod) -> bool:
        """Whether the pod is to go along to the binder."""
        framework = self._frameworks[pod.spec.scheduler_name]
        return framework.binding_reads_pod or self._extending.binder_reads(pod)


def _asks(pod: Pod, load: PodLoad) -> dict[str, int] | None:
    """A pod that waits is judged by its spec, and counts by its status as well where that says something."""
    status = pod.status
    if not (status.container_statuses or status.init_container_statuses or status.resources):
        return None
    asks = filter_requests(pod)
    return None if asks == load.requests else asks


def _unreadable(pod: Pod, cause: Exception) -> Status:
    if isinstance(cause, PluginFailed):
        return error(f"Pod {pod.key}: {cause}").by(cause.plugin)
    return error(str(cause) if isinstance(cause, FlotillaError) else f"Pod {pod.key}: {cause!r}")
