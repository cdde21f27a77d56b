"""Refusals, as the Status objects that Kubernetes clients know."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from shared.errors import UserError
from testing.simulator.resources import ApiResource

Details = dict[str, Any]

MODIFIED = "the object has been modified; please apply your changes to the latest version and try again"


class ApiError(UserError):
    """Answered with a Status of failure."""

    def __init__(self, code: int, reason: str, message: str, details: Details | None = None) -> None:
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        super().__init__(message)

    @property
    def retry_after(self) -> int:
        """Seconds after which the client may retry; 0 if not stated."""
        return int((self.details or {}).get("retryAfterSeconds", 0))

    def body(self) -> bytes:
        """The Status, without a reason or details if there are none."""
        optional = {"reason": self.reason, "details": self.details}
        status = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            **{key: value for key, value in optional.items() if value},
            "code": self.code,
        }
        return msgspec.json.encode(status)


class Cause(NamedTuple):
    """Why one field of an object is invalid."""

    field: str
    reason: str
    message: str


def required(field: str, why: str = "") -> Cause:
    return Cause(field, "FieldValueRequired", f"Required value: {why}" if why else "Required value")


def invalid_value(field: str, value: object, why: str) -> Cause:
    shown = msgspec.json.encode(value).decode()
    return Cause(field, "FieldValueInvalid", f"Invalid value: {shown}: {why}")


def unsupported_value(field: str, value: object, known: Sequence[str]) -> Cause:
    choices = ", ".join(f'"{choice}"' for choice in sorted(known))
    shown = msgspec.json.encode(value).decode()
    return Cause(field, "FieldValueNotSupported", f"Unsupported value: {shown}: supported values: {choices}")


def forbidden_value(field: str, why: str) -> Cause:
    return Cause(field, "FieldValueForbidden", f"Forbidden: {why}")


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def forbidden(resource: ApiResource, name: str, why: str) -> ApiError:
    return ApiError(403, "Forbidden", f'{resource.qualified} "{name}" is forbidden: {why}', _about(resource, name))


def not_found(resource: ApiResource, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{resource.qualified} "{name}" not found', _about(resource, name))


def no_such_route() -> ApiError:
    return ApiError(404, "NotFound", "the server could not find the requested resource", {})


def method_not_allowed() -> ApiError:
    return ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def already_exists(resource: ApiResource, name: str) -> ApiError:
    return ApiError(409, "AlreadyExists", f'{resource.qualified} "{name}" already exists', _about(resource, name))


def conflict(resource: ApiResource, name: str, why: str = MODIFIED, subresource: str = "") -> ApiError:
    about = _about(resource, name)
    qualified = resource.qualified
    if subresource:
        qualified = about["kind"] = f"{resource.plural}/{subresource}"
    return ApiError(409, "Conflict", f'Operation cannot be fulfilled on {qualified} "{name}": {why}', about)


def expired(message: str) -> ApiError:
    return ApiError(410, "Expired", message)


def unsupported_media_type(given: str, accepted: Sequence[str]) -> ApiError:
    message = f"the body of the request was in an unknown format ({given}) - accepted media types include: "
    return ApiError(415, "UnsupportedMediaType", message + ", ".join(accepted))


def invalid(resource: ApiResource, name: str, causes: Sequence[Cause]) -> ApiError:
    return _invalid(resource.kind, resource.group, name, causes)


def invalid_options(*causes: Cause) -> ApiError:
    """Contradictory options of a list or watch."""
    return _invalid("ListOptions", "meta.k8s.io", "", causes)


def _invalid(kind: str, group: str, name: str, causes: Sequence[Cause]) -> ApiError:
    """Every cause appears both in the message and in the details."""
    qualified = f"{kind}.{group}" if group else kind
    shown = [f"{cause.field}: {cause.message}" for cause in causes]
    listed = shown[0] if len(shown) == 1 else f"[{', '.join(shown)}]"
    details: Details = {
        "name": name,
        "group": group,
        "kind": kind,
        "causes": [{"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes],
    }
    return ApiError(422, "Invalid", f'{qualified} "{name}" is invalid: {listed}', details)


def disruption_refused(why: str, retry_after: int = 0) -> ApiError:
    message = "Cannot evict pod as it would violate the pod's disruption budget."
    details: Details = {"causes": [{"reason": "DisruptionBudget", "message": why}]}
    if retry_after:
        details["retryAfterSeconds"] = retry_after
    return ApiError(429, "TooManyRequests", message, details)


def too_large_resource_version(wanted: int, current: int) -> ApiError:
    details: Details = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    return ApiError(504, "Timeout", f"Too large resource version: {wanted}, current: {current}", details)


def _about(resource: ApiResource, name: str) -> Details:
    about: Details = {"name": name, "kind": resource.plural}
    if resource.group:
        about["group"] = resource.group
    return about
