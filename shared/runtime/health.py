"""Health: why a process is not ready, until it is; and whether it leads, where one of several does."""

from collections.abc import Callable

STARTING = "service"


class Health:
    """Not ready from the start, until the service says so with `ready`.

    One that stands by is ready as it is: it is there for when it is needed.
    """

    def __init__(self) -> None:
        self.role = ""
        """Among several of which one leads: `standby: X leads` or `leads, term N`; empty where nobody leads."""
        self.standing_by = False
        self._reasons: dict[str, str] = {STARTING: "is starting"}
        self._checks: dict[str, Callable[[], str]] = {}
        self._known: dict[str, None] = {STARTING: None}
        """All that was ever waited for or checked."""

    def wait_for(self, key: str, why: str) -> None:
        """Not ready, until this key is cleared."""
        self._known[key] = None
        self._reasons[key] = why

    def clear(self, key: str) -> None:
        self._reasons.pop(key, None)

    def ready(self) -> None:
        """The service itself has started."""
        self.clear(STARTING)

    def stand_by(self, role: str) -> None:
        """Another one leads; this one is ready to."""
        self.role, self.standing_by = role, True
        self.clear(STARTING)

    def lead(self, role: str) -> None:
        """This one leads, and is ready when its service says so."""
        if self.standing_by:
            self.wait_for(STARTING, "is starting")
        self.role, self.standing_by = role, False

    def check(self, key: str, why: Callable[[], str]) -> None:
        """Asked each time: why this part is not ready, empty if it is."""
        self._known[key] = None
        self._checks[key] = why

    def checks(self) -> dict[str, str]:
        """Of everything that was ever waited for or checked, why it is not well; empty if it is."""
        found = {key: why() for key, why in self._checks.items()} | self._reasons
        return {key: found.get(key, "") for key in self._known}

    def reasons(self) -> list[str]:
        """One a line; none: ready."""
        return [f"{key}: {why}" for key, why in self.checks().items() if why]
