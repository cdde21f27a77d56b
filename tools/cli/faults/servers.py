"""A Redis that can go back to what it held some time ago, as one that saves now and then, or a replica that lagged."""

import shutil

from shared.store.link import connect
from shared.telemetry.logs import logger
from tools.supervisor.servers import RedisServer

DUMP, KEPT = "dump.rdb", "kept.rdb"


class RewindingRedis(RedisServer):
    """Started again, it is empty, unless it is rolled back."""

    async def keep(self) -> None:
        """Keep a copy of what it holds now."""
        link = await connect(self.url, logger("faults"))
        try:
            await link.call("SAVE")
        finally:
            await link.close()
        (self.folder / DUMP).replace(self.folder / KEPT)

    async def roll_back(self) -> None:
        """Kill it, and start it again with what it held when the copy was made."""
        await self.kill()
        shutil.copyfile(self.folder / KEPT, self.folder / DUMP)
        try:
            await self.start()
        finally:
            (self.folder / DUMP).unlink(missing_ok=True)
