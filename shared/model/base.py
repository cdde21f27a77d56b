"""What all API structures have in common."""

import hashlib
from typing import Any

import msgspec
from msgspec import field

DEFAULT_NAMESPACE = "default"


class BadField(ValueError):
    """A value that an API server would refuse; `field` is the path within the structure that holds it."""

    def __init__(self, field: str, reason: str) -> None:
        self.field = field
        self.reason = reason
        super().__init__(f"{field}: {reason}")


# Objects are trees: nothing in them points back, so the garbage collector has nothing to find.
class ApiStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """A part of a Kubernetes object. Never changed once made; fields that are not declared are skipped."""


class OwnerReference(ApiStruct, frozen=True, kw_only=True):
    """The object that another one belongs to; `controller` marks the one that manages it."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool = False


class ObjectMeta(ApiStruct, frozen=True, kw_only=True):
    """The metadata of an object. Timestamps are kept as written (RFC 3339)."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    owner_references: list[OwnerReference] = field(default_factory=list)
    resource_version: str = ""


class ClusterWide(ApiStruct, frozen=True, kw_only=True, tag=True, tag_field="kind"):
    """An object of no namespace."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)

    @property
    def name(self) -> str:
        """The name, unique in the cluster for the kind."""
        return self.metadata.name

    @property
    def uid(self) -> str:
        """The uid, empty if none was given."""
        return self.metadata.uid

    @property
    def key(self) -> str:
        """The name."""
        return self.metadata.name


class Namespaced(ApiStruct, frozen=True, kw_only=True, tag=True, tag_field="kind"):
    """An object of a namespace."""

    metadata: ObjectMeta = field(default_factory=ObjectMeta)

    @property
    def name(self) -> str:
        """The name within the namespace."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """The namespace, `default` if none was given."""
        return self.metadata.namespace or DEFAULT_NAMESPACE

    @property
    def uid(self) -> str:
        """The uid, empty if none was given."""
        return self.metadata.uid

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.metadata.namespace or DEFAULT_NAMESPACE}/{self.metadata.name}"


_BYTES = 16


class Digest(str):
    """Of plain data, in whatever order its fields come. Empty for what is not there, and for a list of nothing."""

    __slots__ = ()


def digest_of(plain: Any) -> Digest:
    """A text is taken to be a digest: where structures or lists are expected, the API has no texts."""
    if isinstance(plain, str):
        return Digest(plain)
    if plain is None or plain == []:
        return Digest()
    return Digest(hashlib.blake2b(msgspec.json.encode(plain, order="sorted"), digest_size=_BYTES).hexdigest())
