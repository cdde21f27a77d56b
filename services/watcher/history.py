"""History: how far the API server has come, by what it has shown; it must not go back.

A server behind a load balancer, or one that serves from an old cache, may show an older state than another one did.
Bound pods look unbound then, and pods that exist are missing. Versions of one kind of objects can be compared as
integers (Kubernetes documents it since 1.35, and it was so before). What is no integer is trusted.

    list or event of a version --not older than what was shown--> told, and the new mark
                               +--older-------------------------> refused: everything is listed again, after a pause

A watch tells events in the order of their versions, so one mark for a kind is enough, and no object is remembered.
"""

from dataclasses import dataclass

from shared.kube.wire import version_number


@dataclass(slots=True)
class History:
    shown: int = 0
    """The newest version of the kind that was shown, in a list or by an event."""
    floor: int = 0
    """An event that is older than this was told before, or was overtaken by a list."""

    def too_old_to_begin(self, version: str) -> bool:
        """Whether a list of this version would go back in time."""
        return 0 < version_number(version) < self.shown

    def listed(self, version: str, since: str) -> bool:
        """A list of this version ends; False if it goes back in time. Events from `since` on follow."""
        if self.too_old_to_begin(version):
            return False
        self.shown = max(self.shown, version_number(version))
        self.floor = version_number(since)
        return True

    def happened(self, version: str) -> bool:
        """An event of this version comes; False if it goes back in time."""
        number = version_number(version)
        if 0 < number < self.floor:
            return False
        self.floor = max(self.floor, number)
        self.shown = max(self.shown, number)
        return True
