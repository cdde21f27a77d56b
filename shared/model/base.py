"""The base of all API structures: metadata and names."""

from typing import Annotated

import msgspec
from msgspec import Meta, field

DEFAULT_NAMESPACE = "default"

# Numbers in messages, and in objects whose numbers get into messages. What has one out of range does not decode.
LARGEST = (1 << 63) - 1
LONGEST = 1e12
MAX_DIGITS = 20
Count = Annotated[int, Meta(ge=0, le=LARGEST)]
Integer = Annotated[int, Meta(ge=-LARGEST, le=LARGEST)]
Seconds = Annotated[float, Meta(ge=0.0, le=LONGEST)]
"""A duration or a Unix time; finite."""
SignedSeconds = Annotated[float, Meta(ge=-LONGEST, le=LONGEST)]


def version_number(version: str) -> int:
    """A resourceVersion as a comparable number; 0 if it is none."""
    number = int(version) if version.isascii() and version.isdecimal() and len(version) < MAX_DIGITS else 0
    return number if number <= LARGEST else 0


class BadField(ValueError):
    """A value that an API server would refuse; `field` is the path within the structure that holds it."""

    def __init__(self, field: str, reason: str) -> None:
        self.field = field
        self.reason = reason
        super().__init__(f"{field}: {reason}")


# objects are trees without cycles, so the garbage collector need not track them
class ApiStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """A part of a Kubernetes object. Immutable; undeclared fields are skipped when decoding."""


class OwnerReference(ApiStruct, frozen=True, kw_only=True):
    """The object that another one belongs to; `controller` marks the one that manages it."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""An annotation with an object's whole manifest, a pod's environment included."""


class ObjectMeta(ApiStruct, frozen=True, kw_only=True):
    """An object's metadata. Timestamps stay as written (RFC 3339)."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: list[OwnerReference] = field(default_factory=list)
    resource_version: str = ""


class Named(ApiStruct, frozen=True, kw_only=True):
    """An object. Its uid is empty if none was given."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)

    @property
    def name(self) -> str:
        return self.metadata.name

    @property
    def uid(self) -> str:
        return self.metadata.uid


class ClusterWide(Named, frozen=True, kw_only=True, tag=True, tag_field="kind"):
    """A cluster-scoped object. Its kind is encoded with it, so that a message can hold objects of several kinds."""

    @property
    def key(self) -> str:
        return self.metadata.name


class Namespaced(Named, frozen=True, kw_only=True, tag=True, tag_field="kind"):
    """A namespaced object. Its kind is encoded with it."""

    @property
    def namespace(self) -> str:
        """The namespace, `default` if none was given."""
        return self.metadata.namespace or DEFAULT_NAMESPACE

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.metadata.namespace or DEFAULT_NAMESPACE}/{self.metadata.name}"
