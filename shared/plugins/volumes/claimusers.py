"""Which claims are used by the pods on the rows of a table; kept with the table and brought up to date row by row."""

from weakref import WeakKeyDictionary

from shared.cluster.nodetable import NodeTable

NOTHING_SEEN = -1


class ClaimUsers:
    def __init__(self) -> None:
        self._position = NOTHING_SEEN
        self._rows: dict[str, int] = {}
        """On how many rows each claim is used."""
        self._on_row: dict[int, frozenset[str]] = {}

    def refresh(self, table: NodeTable) -> None:
        rows = None if self._position == NOTHING_SEEN else table.load_log.since(self._position)
        if rows is None:
            self._rows.clear()
            self._on_row.clear()
        for row in range(table.size) if rows is None else rows.tolist():
            self._recount(table, row)
        self._position = table.load_log.position

    def is_used(self, claim: str) -> bool:
        """Whether a pod on any row uses the claim of this key."""
        return claim in self._rows

    def _recount(self, table: NodeTable, row: int) -> None:
        before = self._on_row.pop(row, _NONE)
        now = frozenset(f"{load.namespace}/{name}" for load in table.loads_at(row) for name in load.claims)
        if now:
            self._on_row[row] = now
        for claim in before - now:
            self._rows[claim] -= 1
            if not self._rows[claim]:
                del self._rows[claim]
        for claim in now - before:
            self._rows[claim] = self._rows.get(claim, 0) + 1


def claim_users(table: NodeTable) -> ClaimUsers:
    """Up to date."""
    users = _USERS.get(table)
    if users is None:
        users = _USERS[table] = ClaimUsers()
    users.refresh(table)
    return users


_NONE: frozenset[str] = frozenset()
_USERS: WeakKeyDictionary[NodeTable, ClaimUsers] = WeakKeyDictionary()
