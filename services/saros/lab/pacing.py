"""How many events may go now. The clock comes in."""


class Allowance:
    """So many events a second. What was not used is kept for a while only: who was held up catches up a little, and
    does not flood."""

    def __init__(self, rate: float, now_s: float, most_s: float = 1.0) -> None:
        assert rate >= 0, rate
        assert most_s > 0, most_s
        self._rate, self._most, self._at_s, self._left = rate, rate * most_s, now_s, 0.0

    def left(self, now_s: float) -> float:
        """Return how many may go now; below 0: more went than might."""
        self._left = min(self._most, self._left + self._rate * max(0.0, now_s - self._at_s))
        self._at_s = now_s
        return self._left

    def spend(self, events: int) -> None:
        """Note that so many went."""
        self._left -= events
