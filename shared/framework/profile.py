"""Framework: the plugins of one profile, the extension points that run on one pod at a time, and merging of shards."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from flotilla.events import Registration
from flotilla.objects import ClusterObjects
from flotilla.plugin import (
    BindingState,
    BindPlugin,
    ClassState,
    FilterPlugin,
    PermitPlugin,
    PerNodeFilter,
    PerNodeScore,
    Plugin,
    PodParts,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
    ScorePlugin,
    SummaryPlugin,
    Tracker,
)
from flotilla.results import SUCCESS, Code, Range, Status, Topology, error, unresolvable
from shared.config.points import ExtensionPoint
from shared.config.structs import ProfileConfig
from shared.errors import InvalidConfig
from shared.framework.clusterevents import completed, union
from shared.framework.metering import PERMIT, PRE_ENQUEUE, PRE_FILTER, PRE_SCORE, RESERVE, PluginMeter
from shared.framework.signatures import PluginFailed, digest, named, signed, template_of
from shared.framework.unprepared import prepared, score_failure
from shared.messages.evaluation import Rejections, Summary
from shared.model.kinds import ObjectKind
from shared.model.load import load_of
from shared.model.objects import Pod
from shared.plugins.base import InTreePlugin
from shared.plugins.dynamicresources import DynamicResources
from shared.plugins.registry import Factory
from shared.plugins.volumes.podvolumes import VolumePlugin

P = TypeVar("P", bound=Plugin)

MAX_ASKS = 8
"""Evaluations of one class until the merged summary of all shards is the one that it was evaluated with."""

REJECTING = (PreEnqueuePlugin, PreFilterPlugin, FilterPlugin, ReservePlugin, PermitPlugin)
"""Plugins that run at one of these points may reject a pod, which then waits for the events they registered."""


class PreFiltered(msgspec.Struct, frozen=True):
    """The outcome of PreFilter: rejected, or restricted to `nodes` by `restricted_by`, or neither.

    `skipped`: the plugins whose Filter is skipped.
    """

    rejection: Status | None = None
    nodes: frozenset[str] | None = None
    restricted_by: tuple[str, ...] = ()
    skipped: frozenset[str] = frozenset()

    @property
    def outside(self) -> Status:
        """The status of a node that is not among `nodes`."""
        return unresolvable(f"node(s) didn't satisfy plugin(s) [{' '.join(self.restricted_by)}]")


class PermitOutcome(msgspec.Struct, frozen=True):
    """Rejected by `status`; or waiting for `waits` (seconds by plugin), or for nothing."""

    status: Status = SUCCESS
    waits: dict[str, float] = {}


class PluginTracker(NamedTuple):
    """A plugin's tracker. `weight`: of its score. `enforced`: its Filter is enabled; if not, it rejects no node."""

    plugin: str
    tracker: Tracker
    weight: int
    enforced: bool


class Framework:
    def __init__(self, profile: ProfileConfig, registry: Mapping[str, Factory]) -> None:
        self.name = profile.scheduler_name
        self.percentage_of_nodes_to_score = profile.percentage_of_nodes_to_score
        self._made: dict[str, Plugin] = {}
        self._profile = profile
        self._registry = registry
        self.pre_enqueue = self._at(ExtensionPoint.PRE_ENQUEUE, PreEnqueuePlugin)
        self.queue_sort = self._at(ExtensionPoint.QUEUE_SORT, QueueSortPlugin)[0]
        self.pre_filter = self._at(ExtensionPoint.PRE_FILTER, PreFilterPlugin)
        self.filter = prepared(self._at(ExtensionPoint.FILTER, FilterPlugin), {each.name for each in self.pre_filter})
        self.post_filter = self._at(ExtensionPoint.POST_FILTER, PostFilterPlugin)
        self.pre_score = self._at(ExtensionPoint.PRE_SCORE, PreScorePlugin)
        self.score = self._at(ExtensionPoint.SCORE, ScorePlugin)
        self.prepared_only = [p for p in self.pre_score if isinstance(p, ScorePlugin) and p not in self.score]
        """Plugins whose PreScore is enabled, and whose Score is not."""
        names = ({each.name for each in plugins} for plugins in (self.pre_score, self.pre_filter))
        self._score_failure = score_failure(self.score, *names)
        self.reserve = self._at(ExtensionPoint.RESERVE, ReservePlugin)
        self.permit = self._at(ExtensionPoint.PERMIT, PermitPlugin)
        self.pre_bind = self._at(ExtensionPoint.PRE_BIND, PreBindPlugin)
        self.bind = self._at(ExtensionPoint.BIND, BindPlugin)
        self.post_bind = self._at(ExtensionPoint.POST_BIND, PostBindPlugin)
        reading = [plugin.reads_pod for plugins in (self.reserve, self.pre_bind, self.bind) for plugin in plugins]
        self.binding_reads_pod = bool(self.permit or self.post_bind) or any(reading)
        """Whether the binder needs more of a pod than its names."""
        of_classes: list[Plugin] = [*self.pre_filter, *self.filter, *self.post_filter, *self.pre_score, *self.score]
        self.judging = list({plugin.name: plugin for plugin in of_classes}.values())
        """The plugins that judge classes of pods; all others are given one pod at a time."""
        self._of_template = [p for p in self.judging if p.reads_of_pod is PodParts.TEMPLATE]
        self._of_whole = [p for p in self.judging if p.reads_of_pod is PodParts.WHOLE]
        self._sees_loads = any(isinstance(p, PerNodeFilter | PerNodeScore) for p in (*self.filter, *self.score))
        self.is_in_tree = all(isinstance(plugin, InTreePlugin) for plugin in self.judging)
        """Whether every plugin that judges classes of pods is known: none of these looks at nominations."""
        made = {ref.name: ref.weight for ref in profile.plugins.get(ExtensionPoint.SCORE, ())}
        self.weights = [made[plugin.name] for plugin in self.score]
        self.packs = any(plugin.packs and weight for plugin, weight in zip(self.score, self.weights, strict=True))
        """Whether a pod raises the score of its node for the pods that follow."""
        self.volumes = [plugin for plugin in self.filter if isinstance(plugin, VolumePlugin)]
        self.devices = next((plugin for plugin in self.filter if isinstance(plugin, DynamicResources)), None)
        self.summaries = {name: plugin for name, plugin in self._made.items() if isinstance(plugin, SummaryPlugin)}
        self.registrations: Mapping[str, tuple[Registration, ...]] = {
            name: completed(plugin.events())
            for name, plugin in sorted(self._made.items())
            if isinstance(plugin, REJECTING)
        }
        """By plugin, what may help the pods that it rejects. Extenders are not among them."""
        self.tells_apart = frozenset(
            name
            for name, registrations in self.registrations.items()
            if self._made[name].reads_of_pod is PodParts.WHOLE and any(each.hint is not None for each in registrations)
        )
        """Plugins whose hints may read more of a pod than its template."""
        self.watched = union(each for made in self.registrations.values() for each in made)
        """What any plugin waits for; the rest need not be looked at."""

    @property
    def plugins(self) -> list[Plugin]:
        """Those of all points."""
        return list(self._made.values())

    def shown(self, pod: Pod) -> Pod:
        """What plugins are given of the pod that stands for its class."""
        return pod if self._of_whole else template_of(pod)

    def template_signature(self, pod: Pod) -> tuple[object, ...]:
        """What the plugins that read the template only read of a pod: pods of equal templates have equal ones.

        A plugin that looks at single nodes may read anything of the pods there, also of those of the same class that
        a ladder takes to be there already. So with such a plugin pods of one class are equal as loads, too.
        Room kept for nominated pods binds others by priority, and not the nominated pod itself.
        """
        nominated = (pod.uid, pod.status.nominated_node_name) if pod.status.nominated_node_name else None
        shown = template_of(pod)
        signatures = (pod.priority, nominated, *(signed(plugin, pod, shown) for plugin in self._of_template))
        return (*signatures, msgspec.msgpack.encode(load_of(pod))) if self._sees_loads else signatures

    def whole_signature(self, pod: Pod) -> tuple[bytes, ...]:
        """What the plugins that may read more than the template read of a pod; empty without such plugins."""
        return tuple([signed(plugin, pod, pod) for plugin in self._of_whole])

    def reads_objects(self, state: ClassState) -> dict[str, tuple[ObjectKind, ...]]:
        """The kinds of objects that plugins look at for this pod, by plugin; in a fixed order."""
        read: dict[str, tuple[ObjectKind, ...]] = {}
        for plugin in self.judging:
            with named(plugin, "reads_objects"):
                kinds = tuple(sorted(plugin.reads_objects(state)))
            if kinds:
                read[plugin.name] = kinds
        return read

    def class_of_template(self, pod: Pod, *content: bytes | None) -> str:
        """The class of all pods of this template, for plugins that read no more than it.

        `content`: of their resource claims, and of their volume claims; as far as their names do not matter.
        """
        signature = self.template_signature(pod)
        return digest((self.name, signature, *content) if any(content) else (self.name, signature))

    def class_of_pod(self, template_class: str, pod: Pod) -> str:
        """The class of the pod, given that of its template."""
        beyond = self.whole_signature(pod)
        return digest((template_class, beyond)) if beyond else template_class

    def trackers(
        self, pod: Pod, summaries: Mapping[str, Any], late: Mapping[str, Any], ranges: Mapping[str, Range]
    ) -> list[PluginTracker]:
        """The trackers that follow a round's decisions for pods like this.

        Given the merged summaries and ranges of raw scores by which they were judged.
        """
        filters = {plugin.name for plugin in self.filter}
        shown = self.shown(pod)
        weights = {plugin.name: weight for plugin, weight in zip(self.score, self.weights, strict=True)}
        found: list[PluginTracker] = []
        for name, plugin in self.summaries.items():
            with named(plugin, "tracker"):
                tracker = plugin.tracker(shown, summaries.get(name), late.get(name), ranges.get(name))
            if tracker is not None:
                found.append(PluginTracker(name, tracker, weights.get(name, 0), name in filters))
        return found

    # The points, in the order in which a pod meets them. `meter`: times each plugin

    def sort_key(self, pod: Pod, queued_at: float, like: Any = None) -> Any:
        """Raises PluginFailed also if the key does not compare with `like`, another pod's."""
        plugin = self.queue_sort
        with named(plugin, "sort_key"):
            key = plugin.sort_key(pod, queued_at)
            if like is not None and not isinstance(plugin, InTreePlugin):
                bool(key < like or like < key or key == like)
        return key

    def run_pre_enqueue(self, pod: Pod, objects: ClusterObjects, meter: PluginMeter | None = None) -> Status:
        for plugin in self.pre_enqueue:
            began = 0.0 if meter is None else meter.start()
            with named(plugin, "pre_enqueue"):
                status = plugin.pre_enqueue_among(pod, objects)
            if meter is not None:
                meter.stop(plugin.name, PRE_ENQUEUE, began, status.code)
            if not status.ok:
                return status.by(plugin.name)
        return SUCCESS

    def run_pre_filter(self, state: ClassState, meter: PluginMeter | None = None) -> PreFiltered:
        nodes: frozenset[str] | None = None
        restricted_by: list[str] = []
        skipped: set[str] = set()
        rejection: Status | None = None
        for plugin in self.pre_filter:
            began = 0.0 if meter is None else meter.start()
            with named(plugin, "pre_filter"):
                result = plugin.pre_filter(state)
            if meter is not None:
                meter.stop(plugin.name, PRE_FILTER, began, result.status.code)
            if result.status.skipped:
                skipped.add(plugin.name)
                continue
            if not result.status.ok:
                rejection = result.status.by(plugin.name)
                if result.status.code is Code.UNSCHEDULABLE:
                    continue  # preemption may help, and needs the state of the plugins that follow
                if result.status.code is Code.UNRESOLVABLE:
                    return PreFiltered(rejection)
                reason = result.status.message or result.status.code
                return PreFiltered(error(f'running PreFilter plugin "{plugin.name}": {reason}').by(plugin.name))
            if result.nodes is None:
                continue
            restricted_by.append(plugin.name)
            nodes = result.nodes if nodes is None else nodes & result.nodes
            if not nodes:
                names = tuple(sorted(restricted_by))
                several = f"plugin(s) [{' '.join(names)}] simultaneously"
                reason = f"node(s) didn't satisfy {several if len(names) > 1 else f'plugin {names[0]}'}"
                return PreFiltered(unresolvable(reason), nodes, names)
        return PreFiltered(rejection, nodes, tuple(sorted(restricted_by)), frozenset(skipped))

    def run_pre_score(self, state: ClassState, meter: PluginMeter | None = None) -> tuple[Status, frozenset[str]]:
        """The outcome, and the plugins whose Score is skipped. Without any Score there is nothing to prepare."""
        skipped: set[str] = set()
        for plugin in self.pre_score if self.score else ():
            began = 0.0 if meter is None else meter.start()
            with named(plugin, "pre_score"):
                status = plugin.pre_score(state)
            if meter is not None:
                meter.stop(plugin.name, PRE_SCORE, began, status.code)
            if status.skipped:
                skipped.add(plugin.name)
            elif not status.ok:
                failed = error(f'running PreScore plugin "{plugin.name}": {status.message}').by(plugin.name)
                return failed, frozenset(skipped)
        return self._score_failure or SUCCESS, frozenset(skipped)

    def run_reserve(self, state: BindingState, node: str, meter: PluginMeter | None = None) -> Status:
        """All or nothing: a refusal takes back what the earlier plugins reserved."""
        for plugin in self.reserve:
            began = 0.0 if meter is None else meter.start()
            with named(plugin, "reserve"):
                status = plugin.reserve(state, node)
            if meter is not None:
                meter.stop(plugin.name, RESERVE, began, status.code)
            if not status.ok:
                self.run_unreserve(state, node)
                return status.by(plugin.name)
        return SUCCESS

    def run_unreserve(self, state: BindingState, node: str) -> None:
        for plugin in reversed(self.reserve):
            plugin.unreserve(state, node)

    def run_permit(self, state: BindingState, node: str, meter: PluginMeter | None = None) -> PermitOutcome:
        waits: dict[str, float] = {}
        for plugin in self.permit:
            began = 0.0 if meter is None else meter.start()
            with named(plugin, "permit"):
                permission = plugin.permit(state, node)
            if meter is not None:
                meter.stop(plugin.name, PERMIT, began, permission.status.code)
            if permission.status.code is Code.WAIT:
                waits[plugin.name] = permission.timeout
            elif not permission.status.ok:
                return PermitOutcome(permission.status.by(plugin.name))
        return PermitOutcome(SUCCESS, waits)

    def _at(self, point: ExtensionPoint, kind: type[P]) -> list[P]:
        plugins: list[P] = []
        for ref in self._profile.plugins.get(point, ()):
            plugin = self._make(ref.name)
            if not isinstance(plugin, kind):
                raise InvalidConfig(f"profiles[{self.name}].plugins.{point}", f"{ref.name} does not run at this point")
            plugins.append(plugin)
        if point is ExtensionPoint.QUEUE_SORT and len(plugins) != 1:
            raise InvalidConfig(f"profiles[{self.name}].plugins.{point}", "exactly one plugin must sort the queue")
        return plugins

    def _make(self, name: str) -> Plugin:
        if name not in self._made:
            factory = self._registry.get(name)
            if factory is None:
                raise InvalidConfig(f"profiles[{self.name}].plugins", f"there is no plugin {name!r}")
            self._made[name] = factory(self._profile.args.get(name))
        return self._made[name]


def merge(framework: Framework, parts: Iterable[Summary]) -> Summary:
    """The shards' summaries as one."""
    nodes = feasible = 0
    plugins: dict[str, Any] = {}
    late: dict[str, Any] = {}
    ranges: dict[str, Range] = {}
    for part in parts:
        nodes += part.nodes
        feasible += part.feasible
        for name, value in part.plugins.items():
            if name not in plugins:
                plugins[name] = value
                continue
            plugin = framework.summaries[name]
            with named(plugin, "merge"):
                plugins[name] = as_sent(plugin, plugin.merge(plugins[name], value))
        for name, value in part.late.items():
            if name not in late:
                late[name] = value
                continue
            plugin = framework.summaries[name]
            with named(plugin, "merge_feasible"):
                late[name] = as_sent(plugin, plugin.merge_feasible(late[name], value))
        for name, (low, high) in part.ranges.items():
            known = ranges.get(name)
            ranges[name] = (low, high) if known is None else (min(known[0], low), max(known[1], high))
    return Summary(nodes=nodes, feasible=feasible, plugins=plugins, ranges=ranges, late=late)


def as_sent(plugin: Plugin, summary: Any) -> Any:
    """A summary that goes into messages. Raises TypeError if it cannot; in-tree plugins' always can."""
    if not isinstance(plugin, InTreePlugin):
        msgspec.msgpack.encode(summary)
    return summary


def is_mergeable(framework: Framework, part: Summary) -> bool:
    """Whether a shard's summary has the form that its plugins merge, as far as the worker can be blamed for it."""
    try:
        merge(framework, (part, part))
    except Exception as cause:
        return is_of_plugin(framework, cause)
    return True


def is_of_plugin(framework: Framework, cause: Exception) -> bool:
    """Whether an exception over a worker's summary is the fault of a plugin.

    In-tree plugins merge and follow everything that they summarize: if one raises, the worker sent something else. Of
    another plugin is unknown, and no worker is blamed.
    """
    if not isinstance(cause, PluginFailed):
        return False
    return not isinstance(framework.summaries.get(cause.plugin), InTreePlugin)


def plugin_failed(cause: PluginFailed) -> Status:
    """The status of the pods that a plugin's exception concerns."""
    return error(str(cause)).by(cause.plugin)


def merging_failed(cause: Exception) -> Status:
    """The status of pods whose summaries merge each by itself, but not with each other."""
    what = "merging the summaries of the shards"
    if isinstance(cause, PluginFailed):
        return error(f"{what}: {cause}").by(cause.plugin)
    return error(f"{what}: {cause!r}")


def joined(topologies: Iterable[Topology | None]) -> Topology | None:
    """The topologies of several plugins as one."""
    found = [topology for topology in topologies if topology is not None]
    if len(found) < 2:
        return found[0] if found else None
    keys = {key for topology in found for key in topology.keys}
    strata = {key for topology in found for key in topology.strata}
    return Topology(tuple(sorted(keys)), tuple(sorted(strata)))


NO_NODES = "no nodes available to schedule pods"


def merge_rejections(parts: Iterable[Rejections]) -> list[Rejections]:
    counted: Counter[Status] = Counter()
    for part in parts:
        counted[part.status] += part.nodes
    return [Rejections(status, nodes) for status, nodes in counted.items() if nodes]


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
