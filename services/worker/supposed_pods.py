"""What a gang's round supposes while it is decided, kept on the table from one ask to the next.

Each ask names the members that have a place so far, and mostly these are those of the ask before and a few more. So
members stay on the table, in the order in which they were placed, and only what differs is taken back and placed: else
a tree of many groups would cost the square of its members.

    ask: a b c ----> ask: a b c d ----> ask: a b e ----> anything else
         +a +b +c         +d                 -d -c +e         -e -b -a

Nobody else may see or change the table meanwhile: `clear` comes first.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import TypeVar

from services.worker.what_if import evict, place
from shared.cluster.nodetable import NodeTable
from shared.messages.rounds import Given, Propose
from shared.model.load import PodLoad

T = TypeVar("T")


class SupposedPods:
    def __init__(self) -> None:
        self._table: NodeTable | None = None
        """The one that is changed."""
        self._gone: Sequence[str] = ()
        self._unreserved: Sequence[str] = ()
        self._given: list[Given] = []
        self._loads: list[PodLoad] = []
        self._undo: list[ExitStack] = []
        """What takes back the evictions, and then each of the given pods."""

    def __bool__(self) -> bool:
        """Whether anything is supposed at present."""
        return bool(self._undo)

    @contextmanager
    def on(self, table: NodeTable, propose: Propose) -> Iterator[None]:
        """The table is as the ask supposes within the context, and stays so until the next ask or `clear`."""
        try:
            self._suppose(table, propose)
            yield
        except BaseException:
            self.clear()
            raise

    def clear(self) -> None:
        """Restores the table."""
        self._take_back(0)
        self._given.clear()
        self._table = None

    def _suppose(self, table: NodeTable, propose: Propose) -> None:
        if table is not self._table or propose.gone != self._gone or propose.unreserved != self._unreserved:
            self.clear()
            self._gone, self._unreserved = propose.gone, propose.unreserved
            if propose.gone or propose.unreserved or propose.given:
                self._table = table
                self._undo.append(undo := ExitStack())
                evict(table, propose.gone, propose.unreserved, undo)
        common = self._in_common(propose.given, propose.loads)
        self._take_back(common + 1)
        del self._given[common:]
        self._loads = propose.loads
        for each in propose.given[common:]:
            self._undo.append(undo := ExitStack())
            self._given.append(each)
            place(table, each, propose.loads[each.load], undo)

    def _in_common(self, given: list[Given], loads: list[PodLoad]) -> int:
        """With how many of the pods that are placed already these begin."""
        same_loads = _equal_at_first(loads, self._loads)
        same = _equal_at_first(given, self._given)
        if same_loads == len(self._loads):
            return same
        return next((i for i, each in enumerate(given[:same]) if each.load >= same_loads), same)

    def _take_back(self, down_to: int) -> None:
        while len(self._undo) > down_to:
            self._undo.pop().close()


def _equal_at_first(some: list[T], others: list[T]) -> int:
    most = min(len(some), len(others))
    if some[:most] == others[:most]:  # mostly, and a fifth of the time
        return most
    return next(i for i, (one, other) in enumerate(zip(some, others, strict=False)) if one != other)
