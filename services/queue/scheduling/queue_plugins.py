"""QueuePlugins: runs QueueSort and PreEnqueue plugins for pods in the queue.

A plugin that raises gates its pod and nothing else; what it raised goes to `problems`.
"""

from collections import deque
from collections.abc import Callable
from typing import Any

from services.queue.scheduling.queued_pod_info import QueuedPodInfo
from shared.cluster.objects import ClusterObjects
from shared.errors import FlotillaError, UserError
from shared.framework.metering import PRE_ENQUEUE, PluginMeter
from shared.framework.signatures import PluginFailed
from shared.model.objects import Pod


class QueuePlugins:
    def __init__(
        self, objects: ClusterObjects, problems: deque[FlotillaError], stopwatch: Callable[[], float] | None
    ) -> None:
        self.meter = PluginMeter(stopwatch)
        self._objects = objects
        self._problems = problems
        self._last_key: Any = None
        """The next key must compare with it."""

    def sort_key(self, info: QueuedPodInfo, pod: Pod) -> tuple[object, int] | None:
        """If QueueSort raises, the pod keeps its present key; None without one: then `gate` names the plugin."""
        try:
            return self._key_of(info, pod)
        except Exception as cause:
            if info.sort_key is None:
                return None
            self._problems.append(as_problem(f"Pod {pod.key}", cause))
            key: tuple[object, int] = info.sort_key
            return key

    def gate(self, info: QueuedPodInfo) -> str | None:
        """The plugin that gates the pod, or fails; None if none does. The pod's gate_reason is what it says."""
        info.gate_reason = ""
        try:
            if info.sort_key is None:
                info.sort_key = self._key_of(info, info.pod)
            if not info.framework.pre_enqueue:
                return None
            status = info.framework.run_pre_enqueue(info.pod, self._objects, self.meter.of_pod(PRE_ENQUEUE))
        except Exception as cause:
            self._problems.append(as_problem(f"Pod {info.pod.key}", cause))
            info.gate_reason = str(cause) if isinstance(cause, FlotillaError) else repr(cause)
            return cause.plugin if isinstance(cause, PluginFailed) else ""
        if status.ok:
            return None
        info.gate_reason = status.message
        return status.plugin

    def _key_of(self, info: QueuedPodInfo, pod: Pod) -> tuple[object, int]:
        self._last_key = key = info.framework.sort_key(pod, info.queued_at, self._last_key)
        return key, info.sequence


def as_problem(what: str, cause: Exception) -> FlotillaError:
    """What a plugin raised, as an error of ours."""
    if isinstance(cause, FlotillaError) and not isinstance(cause, PluginFailed):
        return cause
    why = str(cause) if isinstance(cause, PluginFailed) else f"{type(cause).__name__}: {cause}"
    problem = UserError(f"{what}: {why}")
    problem.__cause__ = cause
    return problem
