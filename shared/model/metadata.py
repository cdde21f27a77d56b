"""Names, labels and owners."""

from msgspec import field

from shared.model.base import ApiStruct


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
