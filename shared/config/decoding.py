"""From plain dicts to types, as strictly as the Kubernetes API reads them, with the path of whatever does not fit."""

import re
from collections.abc import Callable
from typing import Annotated, Any, Final, TypeVar

import msgspec

from shared.errors import InvalidConfig

T = TypeVar("T")

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]

_WHERE: Final = re.compile(r"(?P<reason>.*?)(?: - at `\$(?P<where>.*)`)?", re.DOTALL)
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(?P<field>.*)`", re.DOTALL)
_LISTS_OF_STRINGS: Final = frozenset({"values", "ignoredResources", "ignoredResourceGroups"})


def child(path: str, key: str) -> str:
    """The path of a field under a path; at the top of the file the path is empty."""
    return f"{path}.{key}" if path else key


def normalized(raw: object, path: str, opaque: frozenset[str] = frozenset()) -> object:
    """The same value in the shape that the types expect: without nulls, and with 4.0 as 4.

    The values of keys in `opaque` are left alone.
    """
    if isinstance(raw, dict):
        result: dict[str, object] = {}
        for key, value in raw.items():
            if not isinstance(key, str):
                raise InvalidConfig(child(path, str(key)), "unknown field")
            # To Kubernetes' decoder a field that is null is one that was not given.
            if value is None:
                continue
            if key in opaque:
                result[key] = value
            elif key in _LISTS_OF_STRINGS and isinstance(value, list):
                result[key] = ["" if item is None else item for item in value]
            else:
                result[key] = normalized(value, child(path, key), opaque)
        return result
    if isinstance(raw, list | tuple):
        items = ({} if item is None else item for item in raw)
        return [normalized(item, f"{path}[{i}]", opaque) for i, item in enumerate(items)]
    if isinstance(raw, float) and raw.is_integer():
        return int(raw)
    return raw


def decode(raw: object, into: type[T], path: str, dec_hook: Callable[[type[Any], Any], Any] | None = None) -> T:
    """The normalized value as the type; what does not fit is an InvalidConfig that names its path in the file."""
    try:
        return msgspec.convert(raw, into, dec_hook=dec_hook)
    except msgspec.ValidationError as error:
        match = _WHERE.fullmatch(str(error))
        assert match is not None
        where = path + (match["where"] or "")
        if unknown := _UNKNOWN.fullmatch(match["reason"]):
            raise InvalidConfig(child(where, unknown["field"]).removeprefix("."), "unknown field") from None
        raise InvalidConfig(where.removeprefix("."), match["reason"]) from None
