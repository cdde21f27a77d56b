"""What expressions of device selectors may use: functions, types, and the variable `device`."""

from collections.abc import Mapping

from shared.cel import types
from shared.cel.declarations import FunctionDeclaration, merged
from shared.cel.library import (
    addresses,
    authorization,
    conversions,
    lists,
    named_formats,
    operators,
    optionals,
    quantities,
    regexes,
    strings,
    temporal,
    urls,
    versions,
)
from shared.cel.types import CelType

FUNCTIONS: Mapping[str, FunctionDeclaration] = merged(
    [
        operators.FUNCTIONS,
        conversions.FUNCTIONS,
        temporal.FUNCTIONS,
        urls.FUNCTIONS,
        regexes.FUNCTIONS,
        lists.KUBERNETES_FUNCTIONS,
        authorization.FUNCTIONS,
        optionals.FUNCTIONS,
        quantities.FUNCTIONS,
        strings.FUNCTIONS,
        lists.SET_FUNCTIONS,
        addresses.FUNCTIONS,
        named_formats.FUNCTIONS,
        lists.MAP_FUNCTIONS,
        versions.FUNCTIONS,
        lists.FUNCTIONS,
        [lists.INCLUDES],
    ]
)
"""By name. The order of the libraries is Kubernetes', because the first overload that fits decides a type."""
NOT_FOR_NEW_OBJECTS = frozenset({lists.INCLUDES.name})
"""Functions that the API server accepts in stored objects only."""

DEVICE = "device"
DEVICE_FIELDS: Mapping[str, CelType] = {
    "driver": types.STRING,
    "allowMultipleAllocations": types.BOOL,
    "attributes": types.map_of(types.STRING, types.map_of(types.STRING, types.ANY)),
    "capacity": types.map_of(types.STRING, types.map_of(types.STRING, types.QUANTITY)),
}

_A, _B = types.parameter("A"), types.parameter("B")
NAMED_TYPES: Mapping[str, CelType] = {
    each.name: each
    for each in (
        types.BOOL,
        types.BYTES,
        types.DOUBLE,
        types.DURATION,
        types.INT,
        types.list_of(_A),
        types.map_of(_A, _B),
        types.NULL,
        types.STRING,
        types.TIMESTAMP,
        types.TYPE,
        types.UINT,
        types.OPTIONAL,
        types.IP,
        types.CIDR,
        types.DEVICE,
    )
} | {
    "google.protobuf.Any": types.ANY,
    "google.protobuf.BoolValue": types.nullable(types.BOOL),
    "google.protobuf.BytesValue": types.nullable(types.BYTES),
    "google.protobuf.DoubleValue": types.nullable(types.DOUBLE),
    "google.protobuf.FloatValue": types.nullable(types.DOUBLE),
    "google.protobuf.Int32Value": types.nullable(types.INT),
    "google.protobuf.Int64Value": types.nullable(types.INT),
    "google.protobuf.ListValue": types.LIST,
    "google.protobuf.NullValue": types.NULL,
    "google.protobuf.StringValue": types.nullable(types.STRING),
    "google.protobuf.Struct": types.map_of(types.STRING, types.DYN),
    "google.protobuf.UInt32Value": types.nullable(types.UINT),
    "google.protobuf.UInt64Value": types.nullable(types.UINT),
    "google.protobuf.Value": types.DYN,
}
"""Types that expressions may name."""

_SECONDS_AND_NANOS = {"seconds": types.INT, "nanos": types.INT}
MESSAGES: Mapping[str, Mapping[str, CelType]] = {
    "google.protobuf.Duration": _SECONDS_AND_NANOS,
    "google.protobuf.Timestamp": _SECONDS_AND_NANOS,
    "kubernetes.DRADevice": DEVICE_FIELDS,
    "google.protobuf.BoolValue": {"value": types.BOOL},
    "google.protobuf.BytesValue": {"value": types.BYTES},
    "google.protobuf.DoubleValue": {"value": types.DOUBLE},
    "google.protobuf.FloatValue": {"value": types.DOUBLE},
    "google.protobuf.Int32Value": {"value": types.INT},
    "google.protobuf.Int64Value": {"value": types.INT},
    "google.protobuf.StringValue": {"value": types.STRING},
    "google.protobuf.UInt32Value": {"value": types.UINT},
    "google.protobuf.UInt64Value": {"value": types.UINT},
}
"""Messages with the types of their fields."""
