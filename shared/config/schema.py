"""KubeSchedulerConfiguration v1 of kube-scheduler v1.36 as tables: every field, what it holds, how it is written."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from shared.config.kinds import Bool, Bytes, DurationKind, Float32, Int, ListOf, MapOf, Raw, Text
from shared.config.points import POINTS_IN_ORDER
from shared.config.records import Field, Marked, Record

GROUP: Final = "kubescheduler.config.k8s.io"
VERSION: Final = "v1"
INTERNAL_VERSION: Final = "__internal"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "KubeSchedulerConfiguration"
MULTI_POINT: Final = "multiPoint"

Tree = dict[str, Any]
"""A record as read: its values by field name, all fields present."""


class Listed(dict[str, Any]):
    """A plugin in a list of the file, and where it stands."""

    path: str = ""


def _listed(value: dict[str, Any], path: str) -> Listed:
    listed = Listed(value)
    listed.path = path
    return listed


@dataclass(slots=True)
class TypedArgs:
    """Arguments that have a type. `filled_in`: of v1, where absent values have defaults."""

    plugin: str
    tree: Tree
    filled_in: bool = True


class Args(Raw):
    """Anything; arguments that have a type are put in its place once they are read."""

    def written(self, value: Any) -> object:
        if not isinstance(value, TypedArgs):
            return value
        fields = ARGS[value.plugin].written(value.tree)
        assert isinstance(fields, dict)
        return {"apiVersion": API_VERSION, "kind": args_kind(value.plugin), **fields}

    def settled(self, value: Any) -> Any:
        if not isinstance(value, TypedArgs):
            return value
        return TypedArgs(value.plugin, ARGS[value.plugin].settled(value.tree), value.filled_in)


def args_kind(plugin: str) -> str:
    """The kind of the arguments of a plugin."""
    return f"{plugin}Args"


TEXT: Final = Text()
BOOL: Final = Bool()
INT32: Final = Int(32)
INT64: Final = Int(64)
DURATION: Final = DurationKind()
TEXTS: Final = ListOf(TEXT)

CLIENT_CONNECTION: Final = Record(
    Field("kubeconfig", TEXT, always=True),
    Field("acceptContentTypes", TEXT, always=True),
    Field("contentType", TEXT, always=True),
    Field("qps", Float32(), always=True, internal="QPS"),
    Field("burst", INT32, always=True),
)
LEADER_ELECTION: Final = Record(
    Field("leaderElect", BOOL, given=True, always=True),
    Field("leaseDuration", DURATION, always=True),
    Field("renewDeadline", DURATION, always=True),
    Field("retryPeriod", DURATION, always=True),
    Field("resourceLock", TEXT, always=True),
    Field("resourceName", TEXT, always=True),
    Field("resourceNamespace", TEXT, always=True),
)

PLUGIN: Final = Record(Field("name", TEXT, always=True), Field("weight", INT32, given=True))
PLUGIN_SET: Final = Record(
    Field("enabled", ListOf(Marked(PLUGIN, _listed))), Field("disabled", ListOf(Marked(PLUGIN, _listed)))
)
PLUGINS: Final = Record(*(Field(str(point), PLUGIN_SET, always=True) for point in (MULTI_POINT, *POINTS_IN_ORDER)))
PLUGIN_CONFIG: Final = Record(Field("name", TEXT, always=True), Field("args", Args(), always=True))
PROFILE: Final = Record(
    Field("schedulerName", TEXT, given=True),
    Field("percentageOfNodesToScore", INT32, given=True, kept=True),
    Field("plugins", PLUGINS, given=True, kept=True),
    Field("pluginConfig", ListOf(PLUGIN_CONFIG)),
)

MANAGED_RESOURCE: Final = Record(Field("name", TEXT, always=True), Field("ignoredByScheduler", BOOL))
TLS: Final = Record(
    Field("insecure", BOOL),
    Field("serverName", TEXT),
    Field("certFile", TEXT),
    Field("keyFile", TEXT),
    Field("caFile", TEXT, internal="CAFile"),
    Field("certData", Bytes()),
    Field("keyData", Bytes()),
    Field("caData", Bytes(), internal="CAData"),
)
EXTENDER: Final = Record(
    Field("urlPrefix", TEXT, always=True, internal="URLPrefix"),
    Field("filterVerb", TEXT),
    Field("preemptVerb", TEXT),
    Field("prioritizeVerb", TEXT),
    Field("weight", INT64),
    Field("bindVerb", TEXT),
    Field("enableHTTPS", BOOL),
    Field("tlsConfig", TLS, given=True, kept=True, internal="TLSConfig"),
    Field("httpTimeout", DURATION, always=True, internal="HTTPTimeout"),
    Field("nodeCacheCapable", BOOL),
    Field("managedResources", ListOf(MANAGED_RESOURCE)),
    Field("ignorable", BOOL),
)
CONFIGURATION: Final = Record(
    Field("parallelism", INT32, given=True),
    Field("leaderElection", LEADER_ELECTION),
    Field("clientConnection", CLIENT_CONNECTION),
    Field("enableProfiling", BOOL, given=True),
    Field("enableContentionProfiling", BOOL, given=True),
    Field("percentageOfNodesToScore", INT32, given=True, kept=True),
    Field("podInitialBackoffSeconds", INT64, given=True),
    Field("podMaxBackoffSeconds", INT64, given=True),
    Field("profiles", ListOf(PROFILE)),
    Field("extenders", ListOf(EXTENDER)),
    Field("delayCacheUntilActive", BOOL),
    headed=True,
)

RESOURCE: Final = Record(Field("name", TEXT, always=True), Field("weight", INT64))
SHAPE_POINT: Final = Record(Field("utilization", INT32, always=True), Field("score", INT32, always=True))
SHAPE: Final = ListOf(SHAPE_POINT)
SCORING_STRATEGY: Final = Record(
    Field("type", TEXT),
    Field("resources", ListOf(RESOURCE)),
    Field("requestedToCapacityRatio", Record(Field("shape", SHAPE)), given=True, kept=True),
)
LABEL_SELECTOR: Final = Record(
    Field("matchLabels", MapOf(TEXT)),
    Field(
        "matchExpressions",
        ListOf(
            Record(
                Field("key", TEXT, always=True),
                Field("operator", TEXT, always=True),
                Field("values", TEXTS),
                core=True,
            )
        ),
    ),
    core=True,
)
SPREAD_CONSTRAINT: Final = Record(
    Field("maxSkew", INT32, always=True),
    Field("topologyKey", TEXT, always=True),
    Field("whenUnsatisfiable", TEXT, always=True),
    Field("labelSelector", LABEL_SELECTOR, given=True, kept=True),
    Field("minDomains", INT32, given=True, kept=True),
    Field("nodeAffinityPolicy", TEXT, given=True, kept=True),
    Field("nodeTaintsPolicy", TEXT, given=True, kept=True),
    Field("matchLabelKeys", TEXTS),
    core=True,
)
REQUIREMENTS: Final = ListOf(
    Record(Field("key", TEXT, always=True), Field("operator", TEXT, always=True), Field("values", TEXTS), core=True)
)
SELECTOR_TERM: Final = Record(Field("matchExpressions", REQUIREMENTS), Field("matchFields", REQUIREMENTS), core=True)
NODE_AFFINITY: Final = Record(
    Field(
        "requiredDuringSchedulingIgnoredDuringExecution",
        Record(Field("nodeSelectorTerms", ListOf(SELECTOR_TERM), always=True), core=True),
        given=True,
        kept=True,
    ),
    Field(
        "preferredDuringSchedulingIgnoredDuringExecution",
        ListOf(Record(Field("weight", INT32, always=True), Field("preference", SELECTOR_TERM, always=True), core=True)),
    ),
    core=True,
)

ARGS: Final[Mapping[str, Record]] = {
    "DefaultPreemption": Record(
        Field("minCandidateNodesPercentage", INT32, given=True),
        Field("minCandidateNodesAbsolute", INT32, given=True),
        headed=True,
    ),
    "DynamicResources": Record(
        Field("filterTimeout", DURATION, given=True, kept=True, always=True),
        Field("bindingTimeout", DURATION, given=True, kept=True),
        headed=True,
    ),
    "InterPodAffinity": Record(
        Field("hardPodAffinityWeight", INT32, given=True),
        Field("ignorePreferredTermsOfExistingPods", BOOL, always=True),
        headed=True,
    ),
    "NodeAffinity": Record(Field("addedAffinity", NODE_AFFINITY, given=True, kept=True), headed=True),
    "NodeResourcesBalancedAllocation": Record(Field("resources", ListOf(RESOURCE)), headed=True),
    "NodeResourcesFit": Record(
        Field("ignoredResources", TEXTS),
        Field("ignoredResourceGroups", TEXTS),
        Field("scoringStrategy", SCORING_STRATEGY, given=True, kept=True),
        headed=True,
    ),
    "PodTopologySpread": Record(
        Field("defaultConstraints", ListOf(SPREAD_CONSTRAINT)), Field("defaultingType", TEXT), headed=True
    ),
    "VolumeBinding": Record(Field("bindTimeoutSeconds", INT64, given=True), Field("shape", SHAPE), headed=True),
}
"""The arguments that have a type, by the name of their plugin."""
