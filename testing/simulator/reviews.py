"""TokenReview and SubjectAccessReview: who a token is of, and what they may do, by a table.

Only paths that are no resources (`/metrics`) are known to the table: that is what components ask before they answer.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from testing.simulator.errors import bad_request
from testing.simulator.resources import Object, Resource, builtin

TOKEN_REVIEWS = builtin("tokenreviews", "authentication.k8s.io")
ACCESS_REVIEWS = builtin("subjectaccessreviews", "authorization.k8s.io")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewed:
    """A user of the table. `may`: verb and path, as `get /metrics`; `*`: any verb, or any end of a path."""

    token: str = field(repr=False)
    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    may: tuple[str, ...] = ()


class Reviews:
    def __init__(self, users: Iterable[Reviewed] = ()) -> None:
        self._users = {user.token: user for user in users}

    def answer(self, resource: Resource, obj: Object) -> Object:
        """The same object with its status."""
        spec = obj.get("spec")
        if not isinstance(spec, dict):
            raise bad_request(f"{resource.kind}: spec is required")
        told = self._token(spec) if resource is TOKEN_REVIEWS else self._access(spec)
        return {"metadata": {}, **obj, "kind": resource.kind, "apiVersion": resource.api_version, "status": told}

    def _token(self, spec: Object) -> Object:
        user = self._users.get(spec.get("token") or "")
        if user is None:
            return {"authenticated": False, "user": {}, "error": "[invalid bearer token, token lookup failed]"}
        groups = [*user.groups, "system:authenticated"]
        return {"authenticated": True, "user": {"username": user.name, "uid": user.uid, "groups": groups}}

    def _access(self, spec: Object) -> Object:
        asked = spec.get("nonResourceAttributes") or {}
        verb, path = asked.get("verb") or "", asked.get("path") or ""
        name = spec.get("user") or ""
        rules = (rule for user in self._users.values() if user.name == name for rule in user.may)
        allowed = any(_allows(rule, verb, path) for rule in rules)
        return {"allowed": allowed, "reason": "" if allowed else f'no rule lets "{name}" {verb} {path}'}


def _allows(rule: str, verb: str, path: str) -> bool:
    verbs, _, pattern = rule.partition(" ")
    fits = path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern
    return verbs in ("*", verb) and fits
