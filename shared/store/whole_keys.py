"""Writes whole keys of a state that is not complete yet: by plain commands, in a transaction that ends with a script.

A script makes Lua strings of all that it is given, which takes Redis several times as long as the commands alone. But
commands do not check whether the term still lasts. So they fill a key beside the state, and then a script gives it its
name if this writer may write, or removes it. No other client ever sees that key.
"""

from collections.abc import Sequence
from typing import Any

from shared.errors import UserError
from shared.store.connecting import CALL_PATIENCE
from shared.store.link import Argument, RedisLink
from shared.store.scripts import Script

ARGUMENTS = 1 << 13
"""Of one command: fields and values."""
FILL_PATIENCE = 30.0
"""Seconds to transfer a whole key, and to write it."""


async def may_fill(link: RedisLink, key: str) -> bool:
    """Whether the user may use transactions: the rules of release 0.1.0 do not let it. `key`: a hash that it reads."""
    try:
        async with link.client.pipeline(transaction=True) as transaction:
            transaction.execute_command("HLEN", key)
            await link.within(CALL_PATIENCE, transaction.execute())
    except UserError:
        return False
    return True


async def fill(
    link: RedisLink,
    script: Script,
    keys: Sequence[str],
    arguments: Sequence[Argument],
    fields: Sequence[Argument],
) -> list[Any]:
    """The script's answer. `keys`: the script's; `fields`, with their values, fill the last but one of them."""
    filled = keys[-2]
    async with link.client.pipeline(transaction=True) as transaction:
        transaction.execute_command("UNLINK", filled)
        for start in range(0, len(fields), ARGUMENTS):
            transaction.execute_command("HSET", filled, *fields[start : start + ARGUMENTS])
        transaction.execute_command("EVAL", script.text, len(keys), *keys, *arguments)
        *_, answer = await link.within(FILL_PATIENCE, transaction.execute())
    return list(answer)
