"""What all API structures have in common."""

import msgspec


class BadField(ValueError):
    """A value that an API server would refuse; `field` is the path within the structure that holds it."""

    def __init__(self, field: str, reason: str) -> None:
        self.field = field
        self.reason = reason
        super().__init__(f"{field}: {reason}")


# Objects are trees: nothing in them points back, so the garbage collector has nothing to find.
class ApiStruct(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, gc=False):
    """A part of a Kubernetes object. Never changed once made; fields that are not declared are skipped."""
