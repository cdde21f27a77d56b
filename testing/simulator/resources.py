"""Resource types: the built-in table, and those that CustomResourceDefinitions declare."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

Object = dict[str, Any]
StorageKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Field:
    """A field that a field selector may name, and the value of objects that lack it."""

    label: str
    path: tuple[str, ...]
    default: str = ""

    def value(self, obj: Object) -> str:
        found: Any = obj
        for step in self.path:
            found = found.get(step) if isinstance(found, dict) else None
            if found is None:
                return self.default
        if isinstance(found, bool):
            return "true" if found else "false"
        return str(found)


def _fields(*labels: str, **defaults: str) -> tuple[Field, ...]:
    return tuple(Field(label, tuple(label.split(".")), defaults.get(label.rpartition(".")[2], "")) for label in labels)


@dataclass(frozen=True, slots=True, eq=False)
class ApiResource:
    """A resource type: its names, where it is stored, and what it supports. Compared by identity."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    fields: tuple[Field, ...] = ()
    categories: tuple[str, ...] = ()
    counts_generations: bool = False
    returns_deleted: bool = False
    strategic: bool = True
    """Supports strategic merge patches: a built-in type. A real server knows the others only by a definition."""
    virtual: bool = False
    """Can be posted, but is not stored (a Binding)."""
    stored_as: StorageKey | None = None
    """Stored with the objects of this other type."""

    @property
    def field_index(self) -> dict[str, int]:
        return {known.label: index for index, known in enumerate(self.fields)}

    @property
    def storage(self) -> StorageKey:
        return self.stored_as or (self.group, self.plural)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural


POD_FIELDS = _fields(
    *("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork"),
    *("status.phase", "status.podIP", "status.nominatedNodeName"),
    hostNetwork="false",
)
EVENT_FIELDS = (
    *_fields(
        *(f"involvedObject.{name}" for name in ("kind", "namespace", "name", "uid", "apiVersion")),
        *("involvedObject.resourceVersion", "involvedObject.fieldPath", "reason", "reportingComponent", "type"),
    ),
    Field("source", ("source", "component")),
)
NEW_EVENT_LABELS = {"reportingComponent": "reportingController", "source": "deprecatedSource"}
NEW_EVENT_FIELDS = tuple(
    Field(NEW_EVENT_LABELS.get(known.label, known.label.replace("involvedObject", "regarding")), known.path)
    for known in EVENT_FIELDS
)
_TRAITS = frozenset({"cluster", "all", "generations", "returned", "virtual", "custom"})


def _type(
    api_version: str, kind: str, names: str, traits: str = "", subresources: str = "", fields: tuple[Field, ...] = ()
) -> ApiResource:
    """`names`: the plural, then the short names. `traits`: words of _TRAITS; without `cluster` it is namespaced."""
    group, _, version = api_version.rpartition("/")
    plural, *short_names = names.split()
    has = set(traits.split())
    assert has <= _TRAITS, traits
    return ApiResource(
        group,
        version,
        kind,
        plural,
        "cluster" not in has,
        tuple(short_names),
        tuple(subresources.split()),
        fields,
        ("all",) if "all" in has else (),
        counts_generations="generations" in has,
        returns_deleted="returned" in has,
        strategic="custom" not in has,
        virtual="virtual" in has,
    )


RESOURCES = (
    _type(
        "v1",
        "Pod",
        "pods po",
        "all generations returned",
        "status binding eviction log exec attach portforward",
        POD_FIELDS,
    ),
    _type("v1", "Node", "nodes no", "cluster", "status", _fields("spec.unschedulable", unschedulable="false")),
    _type("v1", "Namespace", "namespaces ns", "cluster returned", "status finalize", _fields("status.phase")),
    _type("v1", "Service", "services svc", "all returned", "status"),
    _type(
        *("v1", "ReplicationController", "replicationcontrollers rc", "all generations", "status scale"),
        _fields("status.replicas", replicas="0"),
    ),
    _type("v1", "PersistentVolume", "persistentvolumes pv", "cluster returned", "status"),
    _type("v1", "PersistentVolumeClaim", "persistentvolumeclaims pvc", "returned", "status"),
    _type("v1", "Event", "events ev", fields=EVENT_FIELDS),
    _type("v1", "ConfigMap", "configmaps cm"),
    _type("v1", "Secret", "secrets", fields=_fields("type")),
    _type("v1", "ServiceAccount", "serviceaccounts sa", "returned"),
    _type("v1", "Endpoints", "endpoints ep"),
    _type("v1", "Binding", "bindings", "virtual"),
    _type("authentication.k8s.io/v1", "TokenReview", "tokenreviews", "cluster virtual"),
    _type("authorization.k8s.io/v1", "SubjectAccessReview", "subjectaccessreviews", "cluster virtual"),
    _type("authorization.k8s.io/v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", "cluster virtual"),
    _type("v1", "LimitRange", "limitranges limits"),
    _type("v1", "ResourceQuota", "resourcequotas quota", "returned", "status"),
    _type("v1", "PodTemplate", "podtemplates", "returned"),
    _type("apps/v1", "Deployment", "deployments deploy", "all generations", "status scale"),
    _type("apps/v1", "ReplicaSet", "replicasets rs", "all generations", "status scale"),
    _type("apps/v1", "StatefulSet", "statefulsets sts", "all generations", "status scale"),
    _type("apps/v1", "DaemonSet", "daemonsets ds", "all generations", "status"),
    _type("apps/v1", "ControllerRevision", "controllerrevisions"),
    _type("batch/v1", "Job", "jobs", "all generations", "status"),
    _type("batch/v1", "CronJob", "cronjobs cj", "all generations", "status"),
    _type("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies netpol", "generations"),
    _type("networking.k8s.io/v1", "Ingress", "ingresses ing", "generations", "status"),
    _type("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets pdb", "generations", "status"),
    _type("storage.k8s.io/v1", "StorageClass", "storageclasses sc", "cluster returned"),
    _type("storage.k8s.io/v1", "CSINode", "csinodes", "cluster returned"),
    _type("storage.k8s.io/v1", "CSIDriver", "csidrivers", "cluster returned"),
    _type("storage.k8s.io/v1", "CSIStorageCapacity", "csistoragecapacities"),
    _type("storage.k8s.io/v1", "VolumeAttachment", "volumeattachments", "cluster returned", "status"),
    _type("scheduling.k8s.io/v1", "PriorityClass", "priorityclasses pc", "cluster"),
    _type("scheduling.k8s.io/v1alpha2", "Workload", "workloads", "generations"),
    _type("scheduling.k8s.io/v1alpha2", "PodGroup", "podgroups", "generations", "status"),
    *(
        _type(f"scheduling.k8s.io/{version}", kind, names, "generations", status)
        for version, kind, names, status in (
            ("v1beta1", "Workload", "workloads", ""),
            ("v1beta1", "PodGroup", "podgroups", "status"),
            ("v1alpha3", "Workload", "workloads", ""),
            ("v1alpha3", "PodGroup", "podgroups", "status"),
            ("v1alpha3", "CompositePodGroup", "compositepodgroups", "status"),
        )
    ),
    _type("scheduling.x-k8s.io/v1alpha1", "PodGroup", "podgroups pg pgs", "generations custom", "status"),
    _type("coordination.k8s.io/v1", "Lease", "leases"),
    replace(_type("events.k8s.io/v1", "Event", "events ev", fields=NEW_EVENT_FIELDS), stored_as=("", "events")),
    _type("resource.k8s.io/v1", "ResourceClaim", "resourceclaims", "returned", "status"),
    _type(
        *("resource.k8s.io/v1", "ResourceSlice", "resourceslices", "cluster generations returned"),
        fields=_fields("spec.nodeName", "spec.driver"),
    ),
    _type("resource.k8s.io/v1", "DeviceClass", "deviceclasses", "cluster generations returned"),
    _type("resource.k8s.io/v1", "ResourceClaimTemplate", "resourceclaimtemplates", "returned"),
    _type("rbac.authorization.k8s.io/v1", "Role", "roles"),
    _type("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings"),
    _type("rbac.authorization.k8s.io/v1", "ClusterRole", "clusterroles", "cluster"),
    _type("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "clusterrolebindings", "cluster"),
    replace(
        _type(
            *("apiextensions.k8s.io/v1", "CustomResourceDefinition", "customresourcedefinitions crd crds"),
            *("cluster generations", "status"),
        ),
        categories=("api-extensions",),
    ),
)


BUILTIN = {(each.group, each.version, each.plural): each for each in RESOURCES}
LATER_VERSIONS = frozenset({("scheduling.k8s.io", "v1alpha3"), ("scheduling.k8s.io", "v1beta1")})
"""Groups and versions of Kubernetes v1.37, which lacks v1alpha2: served only when asked for."""


class Catalog:
    """The resource types served, by group, version and plural."""

    def __init__(self) -> None:
        self._served = {key: each for key, each in BUILTIN.items() if key[:2] not in LATER_VERSIONS}

    def find(self, group: str, version: str, plural: str) -> ApiResource | None:
        return self._served.get((group, version, plural))

    def replace_custom(self, group: str, plural: str, resources: list[ApiResource]) -> None:
        """Replace the types that one definition declares; built-in types stay."""
        for key in [key for key in self._served if (key[0], key[2]) == (group, plural) and key not in BUILTIN]:
            del self._served[key]
        for resource in resources:
            self._served.setdefault((resource.group, resource.version, resource.plural), resource)

    def serve(self, group: str, versions: tuple[str, ...]) -> None:
        """Serve a group's built-in types in these versions only, as another release does.

        A version without types of its own has those of all others.
        """
        self._served = {key: resource for key, resource in self._served.items() if key[0] != group}
        for version in versions:
            own = [each for each in RESOURCES if (each.group, each.version) == (group, version)]
            others = [replace(each, version=version) for each in RESOURCES if each.group == group]
            for resource in own or others:
                self._served[group, version, resource.plural] = resource

    def groups(self) -> dict[str, list[str]]:
        """The versions of each group; the core group has an empty name."""
        groups: dict[str, dict[str, None]] = {}
        for group, version, _ in self._served:
            groups.setdefault(group, {})[version] = None
        return {group: list(versions) for group, versions in groups.items()}

    def of_version(self, group: str, version: str) -> list[ApiResource]:
        return [resource for key, resource in self._served.items() if key[:2] == (group, version)]

    def __iter__(self) -> Iterator[ApiResource]:
        return iter(self._served.values())


def builtin(plural: str, group: str = "", version: str = "v1") -> ApiResource:
    """A built-in type."""
    return BUILTIN[group, version, plural]


PODS = builtin("pods")
NODES = builtin("nodes")
NAMESPACES = builtin("namespaces")
EVENTS = builtin("events")
NEW_EVENTS = builtin("events", "events.k8s.io")
PRIORITY_CLASSES = builtin("priorityclasses", "scheduling.k8s.io")
RESOURCE_CLAIMS = builtin("resourceclaims", "resource.k8s.io")
DISRUPTION_BUDGETS = builtin("poddisruptionbudgets", "policy")
WORKLOADS = builtin("workloads", "scheduling.k8s.io", "v1alpha2")
POD_GROUPS = builtin("podgroups", "scheduling.k8s.io", "v1alpha2")
LATER_POD_GROUPS = tuple(builtin("podgroups", "scheduling.k8s.io", version) for version in ("v1alpha3", "v1beta1"))
LATER_WORKLOADS = tuple(builtin("workloads", "scheduling.k8s.io", version) for version in ("v1alpha3", "v1beta1"))
COMPOSITE_POD_GROUPS = builtin("compositepodgroups", "scheduling.k8s.io", "v1alpha3")
COSCHEDULING_POD_GROUPS = builtin("podgroups", "scheduling.x-k8s.io", "v1alpha1")
DEFINITIONS = builtin("customresourcedefinitions", "apiextensions.k8s.io")


def custom_resources(definition: Object) -> list[ApiResource]:
    """One type for each version served; all versions share their objects."""
    spec = definition["spec"]
    names = spec["names"]
    return [
        ApiResource(
            spec["group"],
            version["name"],
            names["kind"],
            names["plural"],
            spec["scope"] == "Namespaced",
            tuple(names.get("shortNames") or ()),
            subresources=tuple(name for name in ("status", "scale") if name in (version.get("subresources") or {})),
            categories=tuple(names.get("categories") or ()),
            counts_generations=True,
            strategic=False,
            stored_as=(spec["group"], names["plural"]) if len(spec["versions"]) > 1 else None,
        )
        for version in spec["versions"]
        if version.get("served", True)
    ]


def establish(definition: Object, now: str) -> None:
    """Mark a definition as accepted and established: that takes effect at once."""
    spec = definition["spec"]
    names = {"listKind": f"{spec['names']['kind']}List", "singular": spec["names"]["kind"].lower(), **spec["names"]}
    spec["names"] = names
    definition["status"] = {
        "acceptedNames": names,
        "storedVersions": [version["name"] for version in spec["versions"] if version.get("storage")],
        "conditions": [
            {"type": type_, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now}
            for type_, reason, message in (
                ("NamesAccepted", "NoConflicts", "no conflicts found"),
                ("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            )
        ],
    }
