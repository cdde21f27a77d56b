"""A bucket of tokens: so many calls a second, and so many at once after a while without any.

It is told the time and waits for nothing. Who asks first goes first; who would have to wait too long is told so at
once, and takes nothing from those behind.
"""


class TokenBucket:
    """`rate`: tokens a second, above 0. `burst`: as many are there at most, at least 1; all of them at first."""

    def __init__(self, rate: float, burst: int) -> None:
        self.rate = rate
        self._interval = 1.0 / rate
        self._grace = (max(burst, 1) - 1) * self._interval
        self._full_at = float("-inf")
        """When the bucket will be full again if nobody takes anything more."""

    def take(self, now: float, deadline: float) -> float | None:
        """When the taker may go, from `now` on; None if that were after the deadline, and nothing is taken then."""
        at = max(now, self._full_at - self._grace)
        if at > deadline:
            return None
        self._full_at = max(now, self._full_at) + self._interval
        return at

    def give_back(self) -> None:
        """One that was taken and not used."""
        self._full_at -= self._interval
