"""Redis as one process: its data, the commands that Flotilla uses, and scripts, run by Lua 5.1 as in Redis.

Data can be rolled back (a lagging replica was promoted, or the last second of the file is lost), flushed, or cut off;
each start has its own run id in INFO.
"""

import asyncio
import hashlib
import itertools
from collections.abc import Callable
from typing import Any

from lupa.lua51 import LuaRuntime, lua_type
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, ResponseError

from testing.simulation.loop import WORLD

LATENCY = 0.002
REMEMBERED = 3.0
"""Seconds that it can be rolled back by."""
META = b":meta"
Data = dict[bytes, Any]


def _raw(value: object) -> bytes:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, bytes) else str(value).encode()


def _answer(value: Any) -> Any:
    """A script's return value as Redis converts it: arrays end at the first nil, numbers are truncated."""
    if lua_type(value) == "table":
        numbers = itertools.takewhile(lambda number: value[number] is not None, itertools.count(1))
        return [_answer(value[number]) for number in numbers]
    if isinstance(value, bool) or value is None:
        return 1 if value else None
    return int(value) if isinstance(value, int | float) else value


def _copied(data: Data) -> Data:
    """Hashes change in place, their values do not."""
    return {key: dict(value) if isinstance(value, dict) else value for key, value in data.items()}


class Redis:
    def __init__(self, clock: Callable[[], float]) -> None:
        self.down = False
        self.broken: list[str] = []
        """Violated invariants."""
        self.data: Data = {}
        self._clock = clock
        self._history: list[tuple[float, Data]] = []
        self._scripts: dict[bytes, Callable[..., Any]] = {}
        self._lua = LuaRuntime(encoding=None, register_builtins=False, register_eval=False)
        self._starts = 0
        self.connections: list[Connection] = []
        self.restart()

    # Mishaps

    def fail_over(self, seconds: float, stays: Callable[[str], bool]) -> Callable[[], None]:
        """Promote a replica that lags by `seconds`; processes for which `stays` is true keep talking to the old master.

        Call the result to demote the old master: writes that only it has are lost.
        """
        old = Redis(self._clock)
        old.data, old.broken, old._starts = self.data, self.broken, self._starts
        self.data = _copied(self.data)
        self.roll_back(seconds)
        left = [each for each in self.connections if not each.dead]
        self.connections = left
        staying = [each for each in left if stays(each.name)]
        for each in staying:
            each.server = old

        def end() -> None:
            for each in staying:
                if each.server is old:
                    each.server, each.breaks = self, True

        return end

    def flush(self) -> None:
        self.data = {}
        self.restart()

    def roll_back(self, seconds: float) -> None:
        """Restart with the data of `seconds` ago."""
        since = self._clock() - seconds
        self.data = next((data for at, data in self._history if at > since), self.data)
        self.restart()

    def restart(self) -> None:
        self._starts += 1
        self._scripts.clear()
        self._history.clear()

    # Commands

    def execute(self, command: tuple[object, ...]) -> Any:
        name, *rest = map(_raw, command)
        match name.upper():
            case b"EVAL":
                sha = hashlib.sha1(rest[0], usedforsecurity=False).hexdigest().encode()
                self._scripts[sha] = self._lua.execute(b"return function(KEYS, ARGV, redis) " + rest[0] + b"\nend")
            case b"EVALSHA":
                sha = rest[0]
            case _:
                return self._call(name, *rest)
        if sha not in self._scripts:
            raise NoScriptError("NOSCRIPT No matching script")
        count = int(rest[1])
        return self._run(self._scripts[sha], rest[2 : 2 + count], rest[2 + count :])

    def _run(self, script: Callable[..., Any], keys: list[bytes], arguments: list[bytes]) -> Any:
        self._remember()
        before = self._written(keys)
        tables = self._lua.table_from(keys), self._lua.table_from(arguments)
        answer = script(*tables, self._lua.table_from({b"call": self._called_by_script}))
        after = self._written(keys)
        if after != before and after[0] == before[0] != arguments[0]:
            epochs = arguments[0].decode(), before[0].decode()
            self.broken.append(f"at {self._clock():.3f} Redis takes a write of epoch {epochs[0]} in epoch {epochs[1]}")
        return _answer(answer)

    def _called_by_script(self, *words: Any) -> Any:
        """Redis turns nil into false, and lists into tables."""
        found = self._call(*map(_raw, words))
        if isinstance(found, list):
            return self._lua.table_from(False if each is None else each for each in found)
        return False if found is None else found

    def _written(self, keys: list[bytes]) -> tuple[bytes, bytes]:
        """The epoch of the snapshot's state and the number of its last write; empty for scripts with other keys."""
        meta = self._hash(keys[0]) if keys and keys[0].endswith(META) else {}
        return meta.get(b"epoch", b""), meta.get(b"write", b"")

    def transaction(self, commands: list[tuple[object, ...]]) -> list[Any]:
        return [self.execute(command) for command in commands]

    def _remember(self) -> None:
        now = self._clock()
        while len(self._history) > 1 and self._history[1][0] < now - REMEMBERED:
            self._history.pop(0)
        self._history.append((now, _copied(self.data)))

    def _call(self, name: bytes, *arguments: bytes) -> Any:
        found = getattr(self, f"_{name.decode().lower()}", None)
        if found is None:
            raise ResponseError(f"the simulated Redis does not know {name.decode()}")
        return found(*arguments)

    def _ping(self) -> bytes:
        return b"PONG"

    def _info(self, section: bytes = b"") -> dict[str, str]:
        run = f"{self._starts:040x}"
        return {"redis_version": "6.2.0", "run_id": run, "role": "master", "master_replid": run}

    def _hash(self, key: bytes) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = self.data.get(key, {})
        return found

    def _hmget(self, key: bytes, *fields: bytes) -> list[bytes | None]:
        return [self._hash(key).get(field) for field in fields]

    def _hget(self, key: bytes, field: bytes) -> bytes | None:
        return self._hash(key).get(field)

    def _hset(self, key: bytes, *pairs: bytes) -> int:
        self.data.setdefault(key, {}).update(zip(pairs[::2], pairs[1::2], strict=True))
        return len(pairs) // 2

    def _hdel(self, key: bytes, *fields: bytes) -> int:
        found = self._hash(key)
        gone = sum(found.pop(field, None) is not None for field in fields)
        if not found:
            self.data.pop(key, None)
        return gone

    def _hvals(self, key: bytes) -> list[bytes]:
        return list(self._hash(key).values())

    def _hlen(self, key: bytes) -> int:
        return len(self._hash(key))

    def _hgetall(self, key: bytes) -> dict[bytes, bytes]:
        return dict(self._hash(key))

    def _hscan(self, key: bytes, cursor: bytes, *options: bytes) -> tuple[int, dict[bytes, bytes]]:
        """All at once, as Redis may."""
        return 0, dict(self._hash(key))

    def _get(self, key: bytes) -> bytes | None:
        found: bytes | None = self.data.get(key)
        return found

    def _set(self, key: bytes, value: bytes) -> bytes:
        self.data[key] = value
        return b"OK"

    def _unlink(self, *keys: bytes) -> int:
        return sum(self.data.pop(key, None) is not None for key in keys)

    _del = _unlink

    def _exists(self, *keys: bytes) -> int:
        return sum(key in self.data for key in keys)

    def _rename(self, key: bytes, to: bytes) -> bytes:
        if key not in self.data:
            raise ResponseError("ERR no such key")
        self.data[to] = self.data.pop(key)
        return b"OK"


class Connection:
    """Stands in for `redis.asyncio.Redis` in one process. `dead`: the process is killed and sends nothing more.

    `breaks`: the next call fails.
    """

    def __init__(self, server: Redis, name: str) -> None:
        self.name = name
        self.dead = self.breaks = False
        self.server = server
        server.connections.append(self)

    async def execute_command(self, *command: object) -> Any:
        return await self._ask(lambda: self.server.execute(command))

    def pipeline(self, *, transaction: bool) -> "Transaction":
        return Transaction(self)

    async def transact(self, commands: list[tuple[object, ...]]) -> list[Any]:
        done: list[Any] = await self._ask(lambda: self.server.transaction(commands))
        return done

    async def aclose(self) -> None:
        self.dead = True

    async def _ask(self, work: Callable[[], Any]) -> Any:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()

        def arrive() -> None:
            try:
                broken, self.breaks = self.breaks, False
                if self.server.down or broken:
                    raise RedisConnectionError("connection refused")
                result = work()
            except Exception as cause:
                loop.call_later(LATENCY / 2, _settle, answer, None, cause, context=WORLD)
            else:
                loop.call_later(LATENCY / 2, _settle, answer, result, None, context=WORLD)

        if self.dead:
            raise asyncio.CancelledError
        loop.call_later(LATENCY / 2, arrive, context=WORLD)
        return await answer


class Transaction:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._commands: list[tuple[object, ...]] = []

    async def __aenter__(self) -> "Transaction":
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    def execute_command(self, *command: object) -> None:
        self._commands.append(command)

    async def execute(self) -> list[Any]:
        return await self._connection.transact(self._commands)


def _settle(answer: "asyncio.Future[Any]", result: Any, cause: Exception | None) -> None:
    if answer.done():
        return
    if cause is not None:
        answer.set_exception(cause)
    else:
        answer.set_result(result)
