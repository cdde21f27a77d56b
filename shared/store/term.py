"""The beginning of a term: earlier leaders are shut out, and what they left is read."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from shared.errors import ProtocolError, UserError
from shared.messages.state import Committed, LedgerEntry
from shared.store.errors import Deposed, StateLost
from shared.store.link import Argument, RedisLink
from shared.store.schema import OLDEST_READABLE, SCHEMA, Keys, check_schema, decode_answer, decode_entry, others
from shared.store.scripts import FENCE

EVICTING = "allkeys-"


@dataclass(frozen=True, slots=True)
class Recovered:
    """What the terms before have left. `epoch` is that of the last one, 0 if there was none or Redis has lost it.

    The ledger is in the order of its deadlines. `lost`: what earlier terms have assumed, if there were any, is not
    known: no whole state was written since Redis had none, or since it was another process than the one that was
    written to, which may have gone on without the last writes, or something has been removed from the ledger. Then
    ledger and answer are left out; `doubtful` is what could be read of the ledger. `evicts`: by which policy the server
    may remove keys that it has been given.
    """

    epoch: int
    ledger: list[LedgerEntry]
    answer: Committed | None
    lost: bool
    doubtful: tuple[LedgerEntry, ...] = ()
    evicts: str = ""


async def open_term(link: RedisLink, prefix: str, epoch: int, pipeline: str = "") -> Recovered:
    """From here on nobody of an earlier epoch writes, and there is no state to be read until this term's is whole.

    Deposed if the stored epoch is not older. After StoreUnreachable the term may have been opened or not; an epoch
    opens once, so the next attempt takes a new one. UserError, and nothing is touched, if the schema is unknown, or the
    keys belong to another `pipeline`; keys of nobody become its own.
    """
    keys = Keys(prefix)
    told = await link.info()
    history, evicts = _history(told), _evicts(told)
    arguments: list[Argument] = [SCHEMA, OLDEST_READABLE, epoch, history, pipeline]
    found = await link.run(FENCE, [keys.meta, keys.ledger, keys.answer], arguments)
    match found:
        case [b"done", earlier, entries, answer, lost]:
            if lost or await history_of(link) != history:
                doubtful = tuple(_readable(entries))
                return Recovered(int(earlier), [], None, lost=True, doubtful=doubtful, evicts=evicts)
            ledger = sorted(map(decode_entry, entries), key=lambda entry: (entry.deadline, entry.uid))
            decoded = decode_answer(answer) if answer else None
            return Recovered(int(earlier), ledger, decoded, lost=False, evicts=evicts)
        case _:
            refuse(found, prefix, epoch, link.where)
            raise ProtocolError(f"Redis key {keys.meta}: a script answers {found[0]!r}")


def _readable(entries: Iterable[bytes]) -> Iterator[LedgerEntry]:
    for raw in entries:
        with suppress(ProtocolError):
            yield decode_entry(raw)


async def history_of(link: RedisLink) -> str:
    """What differs once the server may have gone back: its process, and the history of writes that it takes part in."""
    return _history(await link.info())


def _history(told: Mapping[str, Any]) -> str:
    return f"{told['run_id']} {told['master_replid']}"


def _evicts(told: Mapping[str, Any]) -> str:
    """Only keys that expire are removed by the other policies, and none of ours does."""
    policy = str(told.get("maxmemory_policy", ""))
    return policy if policy.startswith(EVICTING) else ""


def refuse(answer: list[object], prefix: str, epoch: int, where: str = "") -> None:
    """Raises what a script's answer says, unless that is `done`."""
    match answer:
        case [b"deposed", bytes(newest)]:
            raise Deposed(epoch, int(newest))
        case [b"lost"]:
            raise StateLost(f"Redis key {prefix}:meta: what epoch {epoch} has written is not there any more")
        case [b"schema", bytes(schema)]:
            check_schema(prefix, schema)
        case [b"pipeline", bytes(whose)]:
            raise UserError(others(prefix, where, whose.decode(errors="replace")))
