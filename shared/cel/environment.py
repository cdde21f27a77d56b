"""What expressions of device selectors may use: functions, types, and the variable `device`."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from shared.cel import types
from shared.cel.declarations import Overload
from shared.cel.library import (
    addresses,
    conversions,
    lists,
    named_formats,
    operators,
    resources,
    strings,
    temporal,
    urls,
)
from shared.cel.types import CelType
from shared.cel.values import Uint, Value

_LIBRARIES = [
    operators.FUNCTIONS,
    conversions.FUNCTIONS,
    temporal.FUNCTIONS,
    urls.FUNCTIONS,
    strings.REGEXES,
    lists.KUBERNETES_FUNCTIONS,
    resources.AUTHORIZATION,
    lists.OPTIONAL_FUNCTIONS,
    resources.QUANTITIES,
    strings.FUNCTIONS,
    lists.SET_FUNCTIONS,
    addresses.FUNCTIONS,
    named_formats.FUNCTIONS,
    lists.MAP_FUNCTIONS,
    resources.VERSIONS,
    lists.FUNCTIONS,
    [lists.INCLUDES],
]
"""In Kubernetes' order, because the first overload that fits decides a type."""


def _by_name() -> dict[str, list[Overload]]:
    functions: defaultdict[str, list[Overload]] = defaultdict(list)
    for library in _LIBRARIES:
        for each in library:
            functions[each.function].append(each)
    return dict(functions)


FUNCTIONS: Mapping[str, Sequence[Overload]] = _by_name()
NOT_FOR_NEW_OBJECTS = frozenset({lists.INCLUDES.function})
"""Functions that the API server accepts in stored objects only."""

DEVICE = "device"
DEVICE_FIELDS: Mapping[str, CelType] = {
    "driver": types.STRING,
    "allowMultipleAllocations": types.BOOL,
    "attributes": types.map_of(types.STRING, types.map_of(types.STRING, types.ANY)),
    "capacity": types.map_of(types.STRING, types.map_of(types.STRING, types.QUANTITY)),
}

WRAPPERS: Mapping[str, tuple[CelType, Value]] = {
    "google.protobuf.BoolValue": (types.BOOL, False),
    "google.protobuf.BytesValue": (types.BYTES, b""),
    "google.protobuf.DoubleValue": (types.DOUBLE, 0.0),
    "google.protobuf.FloatValue": (types.DOUBLE, 0.0),
    "google.protobuf.Int32Value": (types.INT, 0),
    "google.protobuf.Int64Value": (types.INT, 0),
    "google.protobuf.StringValue": (types.STRING, ""),
    "google.protobuf.UInt32Value": (types.UINT, Uint(0)),
    "google.protobuf.UInt64Value": (types.UINT, Uint(0)),
}
"""Messages that stand for a value or null: the type, and the value of an empty message."""

_SCALARS = (types.BOOL, types.BYTES, types.DOUBLE, types.INT, types.STRING, types.UINT)
_TYPES = (
    *(*_SCALARS, types.DURATION, types.list_of(types.DYN), types.map_of(types.DYN, types.DYN)),
    *(types.NULL, types.TIMESTAMP, types.TYPE),
    *(types.OPTIONAL, types.IP, types.CIDR),
)
TYPE_VALUES: Mapping[str, CelType] = {each.name: each for each in _TYPES}
"""Types that are values at run time."""
SCHEMA_TYPES = {"duration": types.DURATION, "timestamp": types.TIMESTAMP, types.DEVICE.name: types.DEVICE}
"""Types of Kubernetes' schemas, which only the checker knows."""
NAMED_TYPES: Mapping[str, CelType] = {
    **TYPE_VALUES,
    **SCHEMA_TYPES,
    **{name: types.nullable(wrapped) for name, (wrapped, _) in WRAPPERS.items()},
    types.ANY.name: types.ANY,
    "google.protobuf.ListValue": types.LIST,
    "google.protobuf.Struct": types.map_of(types.STRING, types.DYN),
    "google.protobuf.Value": types.DYN,
}
"""Types that expressions may name."""

_SECONDS_AND_NANOS = {"seconds": types.INT, "nanos": types.INT}
MESSAGES: Mapping[str, Mapping[str, CelType]] = {
    types.DURATION.name: _SECONDS_AND_NANOS,
    types.TIMESTAMP.name: _SECONDS_AND_NANOS,
    types.DEVICE.name: DEVICE_FIELDS,
    **{name: {"value": wrapped} for name, (wrapped, _) in WRAPPERS.items()},
    **{each.name: {} for each in (*_SCALARS, types.LIST)},
}
"""Messages with the types of their fields, and types that are looked up as if they were messages."""
