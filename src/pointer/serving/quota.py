"""What each API key may still spend. It fills up evenly, a minute's worth in a minute."""

import math
import time
from collections.abc import Callable

from pointer.web import Refusal

MINUTE = 60.0


class Quotas:
    """Token buckets, one a key."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.per_minute = per_minute
        self.clock = clock
        self._left: dict[str, tuple[float, float]] = {}
        """What a key had, and when that was."""

    def left(self, key: str) -> float:
        """What a key can spend now."""
        had, then = self._left.get(key, (self.per_minute, 0.0))
        return min(self.per_minute, had + self.per_minute * (self.clock() - then) / MINUTE)

    def spend(self, key: str, cost: int) -> None:
        """Take the cost of a request off what its key has, or refuse it. Without a key there is nothing to count by."""
        if not key:
            return
        left = self.left(key)
        if cost > left:
            seconds = math.ceil((cost - left) / self.per_minute * MINUTE)
            message = f"This key may spend {self.per_minute:,} a minute: {left:,.0f} are left, and this costs {cost:,}."
            hint = f"Try again in {seconds} seconds, or ask for less."
            raise Refusal(429, "QuotaExceeded", message, hint, {"Retry-After": str(seconds)})
        self._left[key] = left - cost, self.clock()

    def give_back(self, key: str, cost: int) -> None:
        """What was spent on a request that was not taken after all."""
        if key:
            self._left[key] = self.left(key) + cost, self.clock()
