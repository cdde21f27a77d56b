"""Pods that wait for an event: equivalent ones in a group, groups by the plugins whose events they wait for."""

from collections.abc import Iterator
from typing import NamedTuple

from services.queue.scheduling.cluster_event import ClusterChange
from services.queue.scheduling.nominator import PREEMPTION
from services.queue.scheduling.pod_groups import GANG_PLUGINS
from services.queue.scheduling.pod_queues import PodList
from services.queue.scheduling.queued_pod_info import QueuedPodInfo
from services.queue.scheduling.queueing_hints import QueueingHints, QueueStrategy
from shared.errors import InvariantBroken
from shared.framework.clusterevents import EVERYTHING


class _Key(NamedTuple):
    """Pods that agree in it are moved by the same events."""

    profile: str
    equivalence: bytes
    unschedulable_plugins: tuple[str, ...]
    pending_plugins: tuple[str, ...]
    gating_plugin: str | None


class _EqualPods:
    def __init__(self, key: _Key, first: QueuedPodInfo) -> None:
        self.key = key
        self.framework = first.framework
        self.plugins = _awaited_plugins(first)
        self.priority = first.pod.priority
        self.pods: dict[str, QueuedPodInfo] = {}


class UnschedulablePods(PodList):
    """An event costs by groups of equivalent pods that it may help, not by pods."""

    def __init__(self) -> None:
        super().__init__()
        self._groups: dict[_Key, _EqualPods] = {}
        self._by_plugin: dict[tuple[str, str], dict[_Key, _EqualPods]] = {}

    def add(self, info: QueuedPodInfo) -> None:
        super().add(info)
        key = _key(info)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = _EqualPods(key, info)
            for plugin in group.plugins:
                self._by_plugin.setdefault((key.profile, plugin), {})[key] = group
        info.equals = group
        group.pods[info.uid] = info

    def discard(self, info: QueuedPodInfo) -> None:
        super().discard(info)
        group: _EqualPods = info.equals
        info.equals = None
        del group.pods[info.uid]
        if group.pods:
            return
        del self._groups[group.key]
        for plugin in group.plugins:
            waiting = self._by_plugin[group.key.profile, plugin]
            del waiting[group.key]
            if not waiting:
                del self._by_plugin[group.key.profile, plugin]

    def helped_by(self, change: ClusterChange, hints: QueueingHints) -> list[tuple[QueuedPodInfo, QueueStrategy]]:
        """The pods to requeue. Hints are called for one pod of each group, and for the changed pod itself."""
        found: list[tuple[QueuedPodInfo, QueueStrategy]] = []
        for group in self._awaiting(change, hints):
            if change.max_priority is not None and group.priority > change.max_priority:
                continue
            pods = group.pods
            changed = pods.get(change.changed_uid)
            if changed is not None:
                pods = {uid: info for uid, info in pods.items() if info is not changed}
                if changed.uid != change.except_uid and (strategy := hints.strategy(changed, change)):
                    found.append((changed, strategy))
            any_pod = next(iter(pods.values()), None)
            if any_pod is not None and (strategy := hints.strategy(any_pod, change)):
                found += [(info, strategy) for uid, info in pods.items() if uid != change.except_uid]
        return found

    def _awaiting(self, change: ClusterChange, hints: QueueingHints) -> Iterator[_EqualPods]:
        if change.event == EVERYTHING:
            return iter(list(self._groups.values()))
        found: dict[_Key, _EqualPods] = {}
        for (_, plugin), groups in self._by_plugin.items():
            framework = next(iter(groups.values())).framework
            if hints.may_help(framework, plugin, change.event):
                found |= groups
        return iter(found.values())

    def validate(self) -> None:
        for info in self:
            group: _EqualPods = info.equals
            if group.key != _key(info) or group.pods.get(info.uid) is not info:
                raise InvariantBroken(
                    f"pod {info.pod.key} is grouped with other pods than its equals: {info.history()}"
                )
            if self._groups.get(group.key) is not group:
                raise InvariantBroken(f"pod {info.pod.key} is in a group that is not indexed: {info.history()}")
        if sum(len(group.pods) for group in self._groups.values()) != len(self):
            raise InvariantBroken("groups of unschedulable pods hold pods that are not unschedulable")
        indexed = {(plugin, key) for plugin, groups in self._by_plugin.items() for key in groups}
        due = {((key.profile, plugin), key) for key, group in self._groups.items() for plugin in group.plugins}
        if indexed != due:
            raise InvariantBroken(f"index of plugins is wrong: {[plugin for plugin, _ in indexed ^ due]}")


def _awaited_plugins(info: QueuedPodInfo) -> tuple[str, ...]:
    """The plugins whose events may move the pod; none if its pod group or its preemption gates it."""
    if info.gating_plugin is None:
        return info.rejecting_plugins
    return () if info.gating_plugin in GANG_PLUGINS or info.gating_plugin == PREEMPTION else (info.gating_plugin,)


def _key(info: QueuedPodInfo) -> _Key:
    plugins = info.unschedulable_plugins, info.pending_plugins, info.gating_plugin
    return _Key(info.framework.name, info.equivalence, *plugins)
