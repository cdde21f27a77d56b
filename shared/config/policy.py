"""Convert a Policy file (kube-scheduler before v1.23) to a KubeSchedulerConfiguration with one equivalent profile."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from shared.config.args import REQUIRED, ResourceSpec, UtilizationShapePoint
from shared.config.plugin_lists import DEFAULT_POINTS, OLDER_PLUGINS
from shared.config.points import EVERY_PLUGIN, MULTI_POINT, ExtensionPoint
from shared.config.problems import InvalidConfigFile, Stage, invalid
from shared.config.reading import parse_config
from shared.config.spelling import did_you_mean
from shared.config.struct_codec import API_VERSION, Decoder, Int32, Int64, Nanoseconds, Section, TypedSection, encode
from shared.config.structs import KIND, ExtenderConfig

# The plugins that replace predicates and priorities, as in kube-scheduler v1.22

PREDICATES: Final[Mapping[str, tuple[str, ...]]] = {
    "CheckNodeUnschedulable": ("NodeUnschedulable",),
    "GeneralPredicates": ("NodeResourcesFit", "NodeName", "NodePorts", "NodeAffinity"),
    "HostName": ("NodeName",),
    "PodFitsHostPorts": ("NodePorts",),
    "MatchNodeSelector": ("NodeAffinity",),
    "PodFitsResources": ("NodeResourcesFit",),
    "NoDiskConflict": ("VolumeRestrictions",),
    "PodToleratesNodeTaints": ("TaintToleration",),
    "MaxEBSVolumeCount": ("EBSLimits",),
    "MaxGCEPDVolumeCount": ("GCEPDLimits",),
    "MaxCSIVolumeCountPred": ("NodeVolumeLimits",),
    "MaxAzureDiskVolumeCount": ("AzureDiskLimits",),
    "MaxCinderVolumeCount": ("CinderLimits",),
    "CheckVolumeBinding": ("VolumeBinding",),
    "NoVolumeZoneConflict": ("VolumeZone",),
    "EvenPodsSpread": ("PodTopologySpread",),
    "MatchInterPodAffinity": ("InterPodAffinity",),
}
"""In the order in which predicates ran, which was independent of the file."""

MANDATORY_PREDICATES: Final = frozenset({"CheckNodeUnschedulable", "PodToleratesNodeTaints"})
# GeneralPredicates has what HostName, PodFitsHostPorts, MatchNodeSelector and PodFitsResources do.
_OFF: Final = {"HostName", "PodFitsHostPorts", "MatchNodeSelector", "PodFitsResources", "MaxCinderVolumeCount"}
DEFAULT_PREDICATES: Final = frozenset(PREDICATES.keys() - _OFF)
"""Those of a file without predicates."""

PRIORITIES: Final[Mapping[str, str]] = {
    "BalancedResourceAllocation": "NodeResourcesBalancedAllocation",
    "EvenPodsSpreadPriority": "PodTopologySpread",
    "ImageLocalityPriority": "ImageLocality",
    "InterPodAffinityPriority": "InterPodAffinity",
    "LeastRequestedPriority": "NodeResourcesFit",
    "MostRequestedPriority": "NodeResourcesFit",
    "NodeAffinityPriority": "NodeAffinity",
    "NodePreferAvoidPodsPriority": "NodePreferAvoidPods",
    "RequestedToCapacityRatio": "NodeResourcesFit",
    "SelectorSpreadPriority": "PodTopologySpread",
    "TaintTolerationPriority": "TaintToleration",
}
_OTHER_WEIGHTS: Final = {"NodePreferAvoidPodsPriority": 10000, "EvenPodsSpreadPriority": 2}
DEFAULT_PRIORITIES: Final[Mapping[str, int]] = {
    priority: _OTHER_WEIGHTS.get(priority, 1)
    for priority in PRIORITIES
    if priority not in ("MostRequestedPriority", "RequestedToCapacityRatio")
}
"""Those of a file without priorities, with their weights."""

STRATEGIES: Final[Mapping[str, str]] = {
    "LeastRequestedPriority": "LeastAllocated",
    "MostRequestedPriority": "MostAllocated",
    "RequestedToCapacityRatio": "RequestedToCapacityRatio",
}
"""Priorities that are strategies of NodeResourcesFit today, which has one."""

OTHER_NAMES: Final[Mapping[str, str]] = {
    "PodFitsPorts": "PodFitsHostPorts",
    "ServiceSpreadingPriority": "SelectorSpreadPriority",
}

NOT_NEEDED: Final[Mapping[str, str]] = {
    "CheckNodeCondition": "taints of nodes do its work",
    "CheckNodeDiskPressure": "taints of nodes do its work",
    "CheckNodeMemoryPressure": "taints of nodes do its work",
    "CheckNodePIDPressure": "taints of nodes do its work",
    "EqualPriority": "it gave all nodes the same score",
}
"""Names that had no effect even in the last versions, and why."""
REMOVED: Final[Mapping[str, str]] = {"ResourceLimitsPriority": "its plugin was removed"}

FILTERING: Final = (
    ExtensionPoint.PRE_FILTER,
    ExtensionPoint.FILTER,
    ExtensionPoint.RESERVE,
    ExtensionPoint.PRE_BIND,
)
"""The points at which a plugin replaces a predicate."""
SCORING: Final = (ExtensionPoint.PRE_SCORE, ExtensionPoint.SCORE)
LATER: Final = ("SchedulingGates", "DynamicResources", "NodeDeclaredFeatures")
"""Newer than Policy. Without them, pods of today would be bound that must not be."""
LATER_POINTS: Final = (ExtensionPoint.PRE_ENQUEUE, ExtensionPoint.POST_FILTER, *FILTERING)
ALWAYS: Final[Mapping[str, tuple[ExtensionPoint, ...]]] = {
    "PrioritySort": (ExtensionPoint.QUEUE_SORT,),
    "DefaultPreemption": (ExtensionPoint.PRE_ENQUEUE, ExtensionPoint.POST_FILTER),
    "DefaultBinder": (ExtensionPoint.BIND,),
}

MAX_WEIGHT: Final = 2**31 - 1
MAX_HARD_WEIGHT: Final = 100


class Labels(Section, frozen=True):
    """Of serviceAffinity, and with `presence` of labelsPresence."""

    labels: tuple[str, ...] = ()


class LabelsPresence(Labels, frozen=True):
    presence: bool = False


class PredicateArgument(Section, frozen=True):
    service_affinity: Labels | None = None
    labels_presence: LabelsPresence | None = None


class Predicate(Section, frozen=True):
    name: str = ""
    argument: PredicateArgument | None = None


class Label(Section, frozen=True):
    label: str = ""


class LabelPreference(Label, frozen=True):
    presence: bool = False


class RatioArguments(Section, frozen=True):
    shape: tuple[UtilizationShapePoint, ...] = ()
    resources: tuple[ResourceSpec, ...] = ()


class PriorityArgument(Section, frozen=True):
    service_anti_affinity: Label | None = None
    label_preference: LabelPreference | None = None
    requested_to_capacity_ratio_arguments: RatioArguments | None = None


class Priority(Section, frozen=True):
    name: str = ""
    weight: Int64 = 0
    argument: PriorityArgument | None = None


class PolicyExtender(ExtenderConfig, frozen=True):
    """As in a profile, but for one field's name and the type of the time-out."""

    enable_https: bool = msgspec.field(name="enableHttps", default=False)
    http_timeout: Nanoseconds = 0.0

    def plain(self) -> dict[str, Any]:
        """As v1 writes it."""
        plain = encode(ExtenderConfig(**msgspec.structs.asdict(self)))
        return {key: value for key, value in plain.items() if key != "httpTimeout" or self.http_timeout}


class Policy(TypedSection, frozen=True):
    predicates: tuple[Predicate, ...] | None = None
    priorities: tuple[Priority, ...] | None = None
    extenders: tuple[PolicyExtender, ...] = ()
    hard_pod_affinity_symmetric_weight: Int32 = 0
    always_check_all_predicates: bool = False


class Converted(NamedTuple):
    """`config`: plain data of v1. `notes`: a line for each thing that is not carried over, or not as it was.

    `dropped`: how many things of the file that decided where pods go are not carried over.
    """

    config: dict[str, Any]
    notes: list[str]
    dropped: int


def convert_policy(text: str | bytes) -> Converted:
    """Raises InvalidConfigFile where the text is no Policy, or one with wrong values."""
    return _Conversion(_read(text)).run()


def _read(text: str | bytes) -> Policy:
    value, problems = parse_config(text)
    if not isinstance(value, dict):
        raise InvalidConfigFile(Stage.DECODE, [invalid("", value, "the file must be a map")])
    decoder = Decoder()
    decoder.problems += problems
    for key, allowed in (("kind", "Policy"), ("apiVersion", "v1")):
        if value.get(key) != allowed:
            decoder.refuse(key, value.get(key), f"must be {allowed}")
    policy = decoder.section(Policy, value, "")
    for i, priority in enumerate(policy.priorities or ()):
        if not 0 < priority.weight <= MAX_WEIGHT and priority.name != "EqualPriority":
            decoder.refuse(f"priorities[{i}].weight", priority.weight, f"must be from 1 to {MAX_WEIGHT}")
    hard = policy.hard_pod_affinity_symmetric_weight
    if not 0 <= hard <= MAX_HARD_WEIGHT:
        decoder.refuse("hardPodAffinitySymmetricWeight", hard, f"must be from 0 to {MAX_HARD_WEIGHT}")
    if decoder.problems:
        raise InvalidConfigFile(Stage.DECODE, decoder.problems)
    return policy


class _PluginLists:
    """What is enabled at each point, in order; nothing else runs."""

    def __init__(self) -> None:
        self._points: dict[ExtensionPoint, dict[str, int]] = {point: {} for point in ExtensionPoint}

    def enable(self, plugin: str, points: tuple[ExtensionPoint, ...]) -> None:
        own = OLDER_PLUGINS.get(plugin) or DEFAULT_POINTS[plugin]
        for point in points:
            if point in own:
                self._points[point].setdefault(plugin, 0)

    def score_with(self, plugin: str, weight: int) -> int:
        """Return the weight in force: the first one given."""
        self.enable(plugin, SCORING)
        scores = self._points[ExtensionPoint.SCORE]
        scores[plugin] = scores[plugin] or weight
        return scores[plugin]

    def runs(self, plugin: str, point: ExtensionPoint) -> bool:
        return plugin in self._points[point]

    def older(self) -> list[str]:
        """Enabled plugins that kube-scheduler v1.36 does not have."""
        names = dict.fromkeys(name for plugins in self._points.values() for name in plugins)
        return [name for name in names if name in OLDER_PLUGINS]

    def plain(self) -> dict[str, Any]:
        """As `plugins` of a profile."""
        lists: dict[str, Any] = {MULTI_POINT: {"disabled": [{"name": EVERY_PLUGIN}]}}
        for point, plugins in self._points.items():
            if plugins:
                enabled = [
                    {"name": name, "weight": weight} if weight else {"name": name} for name, weight in plugins.items()
                ]
                lists[point.value] = {"enabled": enabled}
        return lists


class _Conversion:
    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._plugins = _PluginLists()
        self._notes: list[str] = []
        self._dropped = 0
        self._args: dict[str, dict[str, Any]] = {}
        self._label_conditions: list[dict[str, str]] = []
        self._labels_from: list[str] = []

    def run(self) -> Converted:
        self._filter()
        self._score()
        self._enforce_labels()
        hard_weight = self._policy.hard_pod_affinity_symmetric_weight
        if hard_weight and self._plugins.runs("InterPodAffinity", ExtensionPoint.SCORE):
            self._args["InterPodAffinity"] = {"hardPodAffinityWeight": hard_weight}
        elif hard_weight:
            why = "it does nothing without InterPodAffinityPriority"
            self._note("hardPodAffinitySymmetricWeight", why, drops=False)
        for plugin in LATER:
            self._plugins.enable(plugin, LATER_POINTS)
        for plugin, points in ALWAYS.items():
            self._plugins.enable(plugin, points)
        if self._policy.always_check_all_predicates:
            why = "a node is not evaluated further once a plugin has rejected it"
            self._note("alwaysCheckAllPredicates", why, drops=False)
        self._notes.append(f"added: {', '.join(LATER)}, which today's pods need and Policy did not have")
        if older := self._plugins.older():
            self._notes.append(f"for Flotilla only: kube-scheduler v1.36 does not have {', '.join(older)}")
        profile: dict[str, Any] = {"schedulerName": "default-scheduler", "plugins": self._plugins.plain()}
        if self._args:
            profile["pluginConfig"] = [{"name": name, "args": args} for name, args in sorted(self._args.items())]
        config: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND, "profiles": [profile]}
        if self._policy.extenders:
            config["extenders"] = [extender.plain() for extender in self._policy.extenders]
        return Converted(config, self._notes, self._dropped)

    # Predicates

    def _filter(self) -> None:
        wanted = set(DEFAULT_PREDICATES)
        if self._policy.predicates is not None:
            wanted = set(MANDATORY_PREDICATES)
            for i, predicate in enumerate(self._policy.predicates):
                wanted.add(self._predicate(predicate, f"predicates[{i}]"))
        for name, plugins in PREDICATES.items():
            for plugin in plugins if name in wanted else ():
                self._plugins.enable(plugin, FILTERING)

    def _predicate(self, predicate: Predicate, path: str) -> str:
        """The name under which PREDICATES may have it."""
        name = OTHER_NAMES.get(predicate.name, predicate.name)
        argument = predicate.argument or PredicateArgument()
        where = f"{path} ({name})"
        if name in PREDICATES:
            if argument != PredicateArgument():
                self._note(f"{path}.argument", f"{name} takes none", drops=False)
            return name
        if presence := argument.labels_presence:
            operator = "Exists" if presence.presence else "DoesNotExist"
            self._label_conditions += ({"key": key, "operator": operator} for key in presence.labels)
            self._labels_from.append(where)
        if affinity := argument.service_affinity:
            self._note(where, f"there is no plugin for serviceAffinity any more (labels: {', '.join(affinity.labels)})")
        if argument == PredicateArgument():
            self._unknown(where, name, "predicate")
        return name

    def _enforce_labels(self) -> None:
        """Labels that nodes must have become an affinity of every pod, if the affinity of pods is evaluated at all."""
        where = ", ".join(self._labels_from)
        if not where:
            return
        if not self._plugins.runs("NodeAffinity", ExtensionPoint.FILTER):
            self._note(where, "labelsPresence needs NodeAffinity, which MatchNodeSelector or GeneralPredicates enable")
            return
        # Labels that must be there come first.
        conditions = sorted(self._label_conditions, key=lambda condition: condition["operator"] != "Exists")
        if conditions:
            required = {"nodeSelectorTerms": [{"matchExpressions": conditions}]}
            self._args["NodeAffinity"] = {"addedAffinity": {REQUIRED: required}}
        self._notes.append(f"changed: {where}: is now addedAffinity of NodeAffinity")

    # Priorities

    def _score(self) -> None:
        weights = self._weights()
        # A plugin that replaces several priorities has the weight of the first of them by name, as it had then.
        for name in sorted(weights):
            plugin = PRIORITIES[name]
            weight = self._plugins.score_with(plugin, weights[name])
            if weight != weights[name]:
                why = f"{plugin} has the weight {weight} already"
                self._note(f"weight {weights[name]} of {name}", why, drops=self._policy.priorities is not None)
        if "SelectorSpreadPriority" in weights:
            self._args["PodTopologySpread"] = {"defaultingType": "System"}
        elif "EvenPodsSpreadPriority" in weights:
            self._args["PodTopologySpread"] = {"defaultingType": "List"}

    def _weights(self) -> dict[str, int]:
        if self._policy.priorities is None:
            return dict(DEFAULT_PRIORITIES)
        weights: dict[str, int] = {}
        for i, priority in enumerate(self._policy.priorities):
            path = f"priorities[{i}]"
            name = self._priority(priority, path)
            if name is None or not self._is_free(name, weights, path):
                continue
            if name in weights:
                self._note(f"weight {weights[name]} of {name}", f"it is given once more, with {priority.weight}")
            weights[name] = priority.weight
        return weights

    def _priority(self, priority: Priority, path: str) -> str | None:
        """The name under which PRIORITIES has it; None, with a note, where no plugin replaces it."""
        name = OTHER_NAMES.get(priority.name, priority.name)
        argument = priority.argument or PriorityArgument()
        where = f"{path} ({name})"
        if name in PRIORITIES and name != "RequestedToCapacityRatio":
            if argument != PriorityArgument():
                self._note(f"{path}.argument", f"{name} takes none", drops=False)
            return name
        if ratio := argument.requested_to_capacity_ratio_arguments:
            self._score_by_shape(ratio)
            return "RequestedToCapacityRatio"
        if anti := argument.service_anti_affinity:
            self._note(where, f"there is no plugin for serviceAntiAffinity any more (label: {anti.label})")
        elif preference := argument.label_preference:
            has = "has" if preference.presence else "does not have"
            self._note(where, f"there is no plugin any more that prefers a node which {has} {preference.label}")
        else:
            self._unknown(where, name, "priority")
        return None

    def _is_free(self, name: str, weights: dict[str, int], path: str) -> bool:
        """Whether no other strategy of NodeResourcesFit is taken: it scores by one."""
        taken = next((other for other in weights if other in STRATEGIES), None)
        if name not in STRATEGIES or taken in (None, name):
            if name in STRATEGIES and name != "RequestedToCapacityRatio":
                self._args["NodeResourcesFit"] = {"scoringStrategy": {"type": STRATEGIES[name]}}
            return True
        why = f"NodeResourcesFit scores by {STRATEGIES[taken or name]} already, and by one strategy only"
        self._note(f"{path} ({name})", why)
        return False

    def _score_by_shape(self, ratio: RatioArguments) -> None:
        other = self._args.get("NodeResourcesFit")
        if other is not None and other["scoringStrategy"]["type"] != STRATEGIES["RequestedToCapacityRatio"]:
            return
        strategy: dict[str, Any] = {
            "type": STRATEGIES["RequestedToCapacityRatio"],
            "requestedToCapacityRatio": {"shape": encode(ratio.shape)},
        }
        if ratio.resources:
            strategy["resources"] = encode(ratio.resources)
        self._args["NodeResourcesFit"] = {"scoringStrategy": strategy}

    # Notes

    def _unknown(self, where: str, name: str, what: str) -> None:
        if name in NOT_NEEDED:
            self._note(where, NOT_NEEDED[name], drops=False)
        else:
            known = (*PREDICATES,) if what == "predicate" else (*PRIORITIES,)
            self._note(where, REMOVED.get(name, f"there is no such {what}{did_you_mean(name, known)}"))

    def _note(self, what: str, why: str, *, drops: bool = True) -> None:
        """`drops`: it decided where pods go."""
        self._notes.append(f"not carried over: {what}: {why}")
        self._dropped += drops
