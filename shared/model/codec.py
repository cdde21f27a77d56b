"""Decoding objects from JSON and plain data, encoding them as JSON and msgpack."""

import re
from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from shared.errors import InvalidObject
from shared.model.base import DEFAULT_NAMESPACE, BadField, ClusterWide
from shared.model.node import UNNAMED, Node, validate_node
from shared.model.pod import Pod, ResourceList
from shared.model.quantity import Quantity, QuantityText, parse_quantity

T = TypeVar("T")

_LOCATED = re.compile(r"(?s)(?P<reason>.*?) - at (?:`key` in )?`\$?\.?(?P<path>.*)`")
_MISSING = re.compile(r"Object missing required field `(.*)`")
_WRITTEN_AS = (str, int, float)
"""What a quantity may be in JSON; a boolean is an int as well."""
_QUANTITIES = (Quantity, QuantityText)
_SEGMENT = re.compile(r"([^.\[\]]+)|\[(\d+)\]|\[\.\.\.\]")


def dec_hook(type_: type, obj: object) -> object:
    if type_ is Quantity or type_ is QuantityText:
        if isinstance(obj, _WRITTEN_AS) and type(obj) is not bool:
            quantity = parse_quantity(obj)
            return quantity if type_ is Quantity else QuantityText(obj)
        raise ValueError(f"a quantity must be a string or a number, not {_json_type(obj)}")
    raise NotImplementedError(f"no decoding for {type_}")


def enc_hook(obj: object) -> object:
    """Encodes our own types for msgspec: a quantity as text that parses back to it."""
    if type(obj) in _QUANTITIES:
        return str(obj)
    raise NotImplementedError(f"no encoding for {type(obj)}")


_JSON_ENCODER = msgspec.json.Encoder(enc_hook=enc_hook)
_MSGPACK_ENCODER = msgspec.msgpack.Encoder(enc_hook=enc_hook)
_POD_DECODER = msgspec.json.Decoder(Pod, dec_hook=dec_hook)
_NODE_DECODER = msgspec.json.Decoder(Node, dec_hook=dec_hook)
_POD_FROM_MSGPACK = msgspec.msgpack.Decoder(Pod, dec_hook=dec_hook)


encode_json: Callable[[object], bytes] = _JSON_ENCODER.encode
"""The object as JSON, in the API's names; defaults are left out."""
encode_msgpack: Callable[[object], bytes] = _MSGPACK_ENCODER.encode
"""The object as msgpack, in the API's names; defaults are left out."""


def decode_pod(raw: bytes) -> Pod:
    """The pod from JSON, with namespace and uid set; raises InvalidObject."""
    try:
        pod = _POD_DECODER.decode(raw)
    except msgspec.DecodeError:
        pod = retry(Pod, plain(Pod, raw))
    return _finish_pod(pod)


def pod_from_msgpack(raw: bytes | msgspec.Raw) -> Pod:
    """The pod from a message of the watcher, which has completed and checked it; raises DecodeError."""
    return _POD_FROM_MSGPACK.decode(raw)


def decode_node(raw: bytes) -> Node:
    """The node from JSON; raises InvalidObject."""
    try:
        node = _NODE_DECODER.decode(raw)
    except msgspec.DecodeError:
        node = retry(Node, plain(Node, raw))
    validate_node(node)
    return node


def pod_from(obj: object) -> Pod:
    """Like `decode_pod`, from plain data."""
    return _finish_pod(convert(Pod, obj))


def node_from(obj: object) -> Node:
    """Like `decode_node`, from plain data."""
    node = convert(Node, obj)
    validate_node(node)
    return node


def convert(type_: type[T], obj: object) -> T:
    """Plain data as this type; raises InvalidObject."""
    try:
        return msgspec.convert(obj, type_, dec_hook=dec_hook)
    except msgspec.ValidationError:
        return retry(type_, obj)


def plain(type_: type, raw: bytes) -> object:
    """The value of a JSON text; raises InvalidObject."""
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidObject(type_.__name__, UNNAMED, "", f"not JSON: {error}") from None


def retry(type_: type[T], obj: object) -> T:
    """Convert what did not decode at first, with null meaning absent.

    Go writes null for lists and maps that were never set. Few objects have such fields, so only these pay for the
    second pass.
    """
    stripped = without_nulls(obj)
    try:
        return msgspec.convert(stripped, type_, dec_hook=dec_hook)
    except msgspec.ValidationError as error:
        raise _invalid(type_, stripped, error) from None


def without_nulls(obj: object) -> object:
    if isinstance(obj, dict):
        return {key: without_nulls(value) for key, value in obj.items() if value is not None}
    if isinstance(obj, list):
        return [without_nulls(item) for item in obj]
    return obj


def _finish_pod(pod: Pod) -> Pod:
    # the object is new and not shared, so changing it in place is safe and avoids a copy
    metadata = pod.metadata
    if not metadata.name:
        raise InvalidObject("Pod", UNNAMED, "metadata.name", "must not be empty")
    if not metadata.namespace:
        msgspec.structs.force_setattr(metadata, "namespace", DEFAULT_NAMESPACE)
    if not metadata.uid:
        msgspec.structs.force_setattr(metadata, "uid", pod.key)
    spec = pod.spec
    for container in spec.containers:
        requests = container.resources.requests
        if (requests and min(requests.values()) < 0) or container.resources.limits:
            _refuse_negatives(pod)
    if spec.init_containers or spec.overhead or spec.resources is not None:
        _refuse_negatives(pod)
    return pod


def _refuse_negatives(pod: Pod) -> None:
    for path, amounts in _resource_lists(pod):
        for resource, amount in amounts.items():
            if amount < 0:
                raise InvalidObject("Pod", pod.key, f"{path}.{resource}", f"must not be negative, is {amount!s}")


def _resource_lists(pod: Pod) -> Iterator[tuple[str, ResourceList]]:
    spec = pod.spec
    required = {
        f"spec.{field}[{index}].resources": container.resources
        for field, containers in (("containers", spec.containers), ("initContainers", spec.init_containers))
        for index, container in enumerate(containers)
    }
    if spec.resources is not None:
        required["spec.resources"] = spec.resources
    for path, requirements in required.items():
        yield f"{path}.requests", requirements.requests
        yield f"{path}.limits", requirements.limits
    yield "spec.overhead", spec.overhead


def _invalid(type_: type, obj: object, error: msgspec.ValidationError) -> InvalidObject:
    text = str(error)
    located = _LOCATED.fullmatch(text)
    path, reason = (located["path"], located["reason"]) if located else ("", text)
    cause = error.__cause__
    missing = _MISSING.fullmatch(reason)
    if isinstance(cause, BadField):
        path, reason = _join(path, cause.field), cause.reason
    elif missing:
        path, reason = _join(path, missing[1]), "is required"
    elif "[...]" in path:
        path = _name_keys(obj, path, _is_quantity if cause is not None else _is_string)
    return InvalidObject(type_.__name__, _key(type_, obj), path, reason)


def _join(path: str, field: str) -> str:
    return f"{path}.{field}" if path else field


def _name_keys(obj: object, path: str, valid: Callable[[object], bool]) -> str:
    """The path, with `[...]` (any key of a mapping) replaced by the first key whose value is invalid."""
    named = ""
    for segment in _SEGMENT.finditer(path):
        name, index = segment.groups()
        if name is None and index is None:
            name = (
                next((str(key) for key, value in obj.items() if not valid(value)), "") if isinstance(obj, dict) else ""
            )
        if index is not None:
            obj = obj[int(index)] if isinstance(obj, list) and int(index) < len(obj) else None
            named += f"[{index}]"
        else:
            obj = obj.get(name) if isinstance(obj, dict) else None
            named = _join(named, name)
    return named


def _is_quantity(value: object) -> bool:
    try:
        dec_hook(Quantity, value)
    except ValueError:
        return False
    return True


def _is_string(value: object) -> bool:
    return isinstance(value, str)


def _key(type_: type, obj: object) -> str:
    metadata = obj.get("metadata") if isinstance(obj, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not name:
        return UNNAMED
    if issubclass(type_, ClusterWide | Node):
        return name
    namespace = metadata.get("namespace") if isinstance(metadata, dict) else None
    return f"{namespace or DEFAULT_NAMESPACE}/{name}"


def _json_type(obj: object) -> str:
    if obj is None:
        return "null"
    return {bool: "a boolean", list: "an array", dict: "an object"}.get(type(obj), type(obj).__name__)
