"""What if: the state on which tools/whatif answers a page's questions. Nothing is changed by asking."""

from collections.abc import Sequence

from shared.model.objects import Pod
from tools import live_state
from tools.console.follower import Follower


class LiveSource:
    """The pipeline that is followed, as of each question."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower

    async def live(self) -> live_state.LiveState:
        return await live_state.load(self._follower.client)

    async def pods_on(self, node: str) -> Sequence[Pod]:
        return await live_state.pods_on(self._follower.client, node)
