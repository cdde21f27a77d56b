"""What names an object in the cluster: its name alone, or its namespace too.

Objects carry the API's name of their kind, so that one can be told from another wherever several may stand.
"""

from msgspec import field

from shared.model.base import ApiStruct
from shared.model.metadata import ObjectMeta
from shared.model.pod import DEFAULT_NAMESPACE


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
