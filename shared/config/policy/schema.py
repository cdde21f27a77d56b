"""A Policy file as a table: every field, and what it holds."""

from typing import Final

from shared.config.durations import Duration, parse_duration
from shared.config.kinds import Bool, Int, Kind, ListOf, Reading, Text
from shared.config.records import Field, Record
from shared.config.schema import MANAGED_RESOURCE, RESOURCE, SHAPE, TLS

KIND: Final = "Policy"
API_VERSION: Final = "v1"


class Timeout(Kind):
    """Nanoseconds as a number; a duration with a unit is understood as well."""

    zero = Duration(0)

    def read(self, value: object, path: str, reading: Reading) -> Duration:
        if isinstance(value, int) and not isinstance(value, bool):
            return Duration(value)
        if isinstance(value, str):
            try:
                return parse_duration(value)
            except ValueError:
                pass
        reading.refuse(path, value, 'must be a whole number of nanoseconds, or a duration like "5s"')
        return Duration(0)


_TEXT: Final = Text()
_BOOL: Final = Bool()
_LABELS: Final = Field("labels", ListOf(_TEXT))


def _given(name: str, *fields: Field) -> Field:
    return Field(name, Record(*fields), given=True)


PREDICATE: Final = Record(
    Field("name", _TEXT),
    _given(
        "argument",
        _given("serviceAffinity", _LABELS),
        _given("labelsPresence", _LABELS, Field("presence", _BOOL)),
    ),
)
PRIORITY: Final = Record(
    Field("name", _TEXT),
    Field("weight", Int(64)),
    _given(
        "argument",
        _given("serviceAntiAffinity", Field("label", _TEXT)),
        _given("labelPreference", Field("label", _TEXT), Field("presence", _BOOL)),
        _given("requestedToCapacityRatioArguments", Field("shape", SHAPE), Field("resources", ListOf(RESOURCE))),
    ),
)
EXTENDER: Final = Record(
    Field("urlPrefix", _TEXT),
    Field("filterVerb", _TEXT),
    Field("preemptVerb", _TEXT),
    Field("prioritizeVerb", _TEXT),
    Field("weight", Int(64)),
    Field("bindVerb", _TEXT),
    Field("enableHttps", _BOOL),
    Field("tlsConfig", TLS, given=True),
    Field("httpTimeout", Timeout()),
    Field("nodeCacheCapable", _BOOL),
    Field("managedResources", ListOf(MANAGED_RESOURCE)),
    Field("ignorable", _BOOL),
)
POLICY: Final = Record(
    Field("predicates", ListOf(PREDICATE)),
    Field("priorities", ListOf(PRIORITY)),
    Field("extenders", ListOf(EXTENDER)),
    Field("hardPodAffinitySymmetricWeight", Int(32)),
    Field("alwaysCheckAllPredicates", _BOOL),
    headed=True,
)
