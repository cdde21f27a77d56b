"""Resource types: the built-in table, and those that CustomResourceDefinitions declare."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

Object = dict[str, Any]
StorageKey = tuple[str, str]
SCALABLE = ("status", "scale")


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
class Resource:
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
    virtual: bool = False
    """Can be posted, but is not stored (a Binding)."""
    kept_as: StorageKey | None = None
    """Stored with the objects of this other type."""
    field_index: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.field_index.update({known.label: index for index, known in enumerate(self.fields)})

    @property
    def storage(self) -> StorageKey:
        return self.kept_as or (self.group, self.plural)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def is_custom(self) -> bool:
        """Whether a real server knows it only by a definition."""
        return not self.strategic

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources


STATUS = ("status",)


POD_SUBRESOURCES = ("status", "binding", "eviction", "log")


POD_FIELDS = _fields(
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.nominatedNodeName",
    hostNetwork="false",
)


EVENT_FIELDS = (
    *_fields(
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "type",
    ),
    Field("source", ("source", "component")),
)


NEW_EVENT_LABELS = {"reportingComponent": "reportingController", "source": "deprecatedSource"}


NEW_EVENT_FIELDS = tuple(
    Field(NEW_EVENT_LABELS.get(known.label, known.label.replace("involvedObject", "regarding")), known.path)
    for known in EVENT_FIELDS
)


RESOURCES = (
    Resource("", "v1", "Pod", "pods", True, ("po",), POD_SUBRESOURCES, POD_FIELDS, ("all",), True, True),
    Resource("", "v1", "Node", "nodes", False, ("no",), STATUS, _fields("spec.unschedulable", unschedulable="false")),
    Resource(
        "",
        "v1",
        "Namespace",
        "namespaces",
        False,
        ("ns",),
        ("status", "finalize"),
        _fields("status.phase"),
        returns_deleted=True,
    ),
    Resource("", "v1", "Service", "services", True, ("svc",), STATUS, categories=("all",), returns_deleted=True),
    Resource(
        "",
        "v1",
        "ReplicationController",
        "replicationcontrollers",
        True,
        ("rc",),
        SCALABLE,
        _fields("status.replicas", replicas="0"),
        ("all",),
        True,
    ),
    Resource("", "v1", "PersistentVolume", "persistentvolumes", False, ("pv",), STATUS, returns_deleted=True),
    Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", True, ("pvc",), STATUS, returns_deleted=True),
    Resource("", "v1", "Event", "events", True, ("ev",), (), EVENT_FIELDS),
    Resource("", "v1", "ConfigMap", "configmaps", True, ("cm",)),
    Resource("", "v1", "Secret", "secrets", fields=_fields("type")),
    Resource("", "v1", "ServiceAccount", "serviceaccounts", True, ("sa",), returns_deleted=True),
    Resource("", "v1", "Endpoints", "endpoints", True, ("ep",)),
    Resource("", "v1", "Binding", "bindings", virtual=True),
    Resource("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", namespaced=False, virtual=True),
    Resource(
        "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", namespaced=False, virtual=True
    ),
    Resource("", "v1", "LimitRange", "limitranges", True, ("limits",)),
    Resource("", "v1", "ResourceQuota", "resourcequotas", True, ("quota",), STATUS, returns_deleted=True),
    Resource("", "v1", "PodTemplate", "podtemplates", returns_deleted=True),
    Resource("apps", "v1", "Deployment", "deployments", True, ("deploy",), SCALABLE, (), ("all",), True),
    Resource("apps", "v1", "ReplicaSet", "replicasets", True, ("rs",), SCALABLE, (), ("all",), True),
    Resource("apps", "v1", "StatefulSet", "statefulsets", True, ("sts",), SCALABLE, (), ("all",), True),
    Resource("apps", "v1", "DaemonSet", "daemonsets", True, ("ds",), STATUS, (), ("all",), True),
    Resource("apps", "v1", "ControllerRevision", "controllerrevisions"),
    Resource("batch", "v1", "Job", "jobs", True, (), STATUS, (), ("all",), True),
    Resource("batch", "v1", "CronJob", "cronjobs", True, ("cj",), STATUS, (), ("all",), True),
    Resource(
        "policy",
        "v1",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        True,
        ("pdb",),
        STATUS,
        counts_generations=True,
    ),
    Resource("storage.k8s.io", "v1", "StorageClass", "storageclasses", False, ("sc",), returns_deleted=True),
    Resource("storage.k8s.io", "v1", "CSINode", "csinodes", False, returns_deleted=True),
    Resource("storage.k8s.io", "v1", "CSIDriver", "csidrivers", False, returns_deleted=True),
    Resource("storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities"),
    Resource("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", False, (), STATUS, returns_deleted=True),
    Resource("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", False, ("pc",)),
    Resource("scheduling.k8s.io", "v1alpha2", "Workload", "workloads", counts_generations=True),
    Resource("scheduling.k8s.io", "v1alpha2", "PodGroup", "podgroups", True, (), STATUS, counts_generations=True),
    Resource(
        "scheduling.x-k8s.io",
        "v1alpha1",
        "PodGroup",
        "podgroups",
        True,
        ("pg", "pgs"),
        STATUS,
        counts_generations=True,
        strategic=False,
    ),
    Resource("coordination.k8s.io", "v1", "Lease", "leases"),
    Resource("events.k8s.io", "v1", "Event", "events", True, ("ev",), (), NEW_EVENT_FIELDS, kept_as=("", "events")),
    Resource("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", True, (), STATUS, returns_deleted=True),
    Resource(
        "resource.k8s.io",
        "v1",
        "ResourceSlice",
        "resourceslices",
        False,
        fields=_fields("spec.nodeName", "spec.driver"),
        counts_generations=True,
        returns_deleted=True,
    ),
    Resource(
        "resource.k8s.io", "v1", "DeviceClass", "deviceclasses", False, counts_generations=True, returns_deleted=True
    ),
    Resource("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates", returns_deleted=True),
    Resource("rbac.authorization.k8s.io", "v1", "Role", "roles"),
    Resource("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
    Resource("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", False),
    Resource("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", False),
    Resource(
        "apiextensions.k8s.io",
        "v1",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        False,
        ("crd", "crds"),
        STATUS,
        categories=("api-extensions",),
        counts_generations=True,
    ),
)


class Catalog:
    """The resource types served, by group version and plural."""

    def __init__(self) -> None:
        self._served: dict[tuple[str, str], dict[str, Resource]] = {}
        self._builtin: set[tuple[str, str, str]] = set()
        for resource in RESOURCES:
            self.add(resource)
            self._builtin.add((resource.group, resource.version, resource.plural))

    def add(self, resource: Resource) -> None:
        self._served.setdefault((resource.group, resource.version), {})[resource.plural] = resource

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        served = self._served.get((group, version))
        return None if served is None else served.get(plural)

    def replace_custom(self, group: str, plural: str, resources: list[Resource]) -> None:
        """Replace the types that one definition declares; built-in types stay."""
        for (known_group, version), served in list(self._served.items()):
            if known_group == group and plural in served and (group, version, plural) not in self._builtin:
                del served[plural]
                if not served:
                    del self._served[known_group, version]
        for resource in resources:
            if self.find(resource.group, resource.version, resource.plural) is None:
                self.add(resource)

    def serve(self, group: str, versions: tuple[str, ...]) -> None:
        """Serve a group's built-in types in these versions only, as another release does."""
        for known in [known for known in self._served if known[0] == group]:
            del self._served[known]
        for version in versions:
            for resource in RESOURCES:
                if resource.group == group:
                    self.add(replace(resource, version=version))

    def groups(self) -> dict[str, list[str]]:
        """The versions of each group; the core group has an empty name."""
        groups: dict[str, list[str]] = {}
        for group, version in self._served:
            groups.setdefault(group, []).append(version)
        return groups

    def of_version(self, group: str, version: str) -> list[Resource] | None:
        served = self._served.get((group, version))
        return None if served is None else list(served.values())

    def __iter__(self) -> Iterator[Resource]:
        for served in self._served.values():
            yield from served.values()


CATALOG_OF_BUILTINS = Catalog()


def builtin(plural: str, group: str = "", version: str = "v1") -> Resource:
    """A built-in type."""
    resource = CATALOG_OF_BUILTINS.find(group, version, plural)
    assert resource is not None
    return resource


PODS = builtin("pods")


NODES = builtin("nodes")


NAMESPACES = builtin("namespaces")


EVENTS = builtin("events")


NEW_EVENTS = builtin("events", "events.k8s.io")


PRIORITY_CLASSES = builtin("priorityclasses", "scheduling.k8s.io")


DISRUPTION_BUDGETS = builtin("poddisruptionbudgets", "policy")


WORKLOADS = builtin("workloads", "scheduling.k8s.io", "v1alpha2")


POD_GROUPS = builtin("podgroups", "scheduling.k8s.io", "v1alpha2")


COSCHEDULING_POD_GROUPS = builtin("podgroups", "scheduling.x-k8s.io", "v1alpha1")


DEFINITIONS = builtin("customresourcedefinitions", "apiextensions.k8s.io")


def custom_resources(definition: Object) -> list[Resource]:
    """One type for each version served; all versions share their objects."""
    spec = definition["spec"]
    names = spec["names"]
    return [
        Resource(
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
            kept_as=(spec["group"], names["plural"]) if len(spec["versions"]) > 1 else None,
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
