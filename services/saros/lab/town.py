"""Who is there, and who looks at a slate next. Pure, as `saros.lab.people` is.

So many people are there at a time, each on a seat. In a session slates follow one another closely, then comes a pause;
active people pause for less long. One that has had its slates leaves for good, and the next number takes the seat.
"""

import numpy as np

from saros.lab.people import F64, I64, NOBODY, STAY_MAX, activity, draws, stays

_PAUSE = 12.0  # times the time between two slates of a session
_SESSION_SLATES = 5.0  # on average
_ARM, _GAP, _GOES_ON, _BEGUN = range(100, 104)


def user_id(person: int) -> str:
    """Return what a person is called in events."""
    return f"u{person}"


class Town:
    """Seats with people: their numbers, how many slates each had, when it is next, and what it took."""

    def __init__(self, seed: int, seats: int, first: int = 1) -> None:
        """The first to come have the numbers from `first` on."""
        assert seats >= 1, seats
        self._seed, self._next = seed, first + seats
        self.person: I64 = np.arange(first, first + seats)
        self.taken: I64 = np.full((seats, STAY_MAX), NOBODY)
        self.session: I64 = np.zeros(seats, np.int64)
        # As if they had come one by one before: else all would leave together.
        stay = stays(seed, self.person)
        self.slate: I64 = (draws(seed, _BEGUN, self.person) * stay).astype(np.int64)
        self._due: F64 = self._pause(np.arange(seats)) * draws(seed, _BEGUN, self.person, 1)

    @property
    def seats(self) -> int:
        """How many are there at a time."""
        return len(self.person)

    @property
    def newest(self) -> int:
        """The highest number that was given to somebody."""
        return self._next - 1

    def next(self, count: int) -> I64:
        """Return the seats of those who look at a slate next, no one twice."""
        count = min(count, self.seats)
        return np.argsort(self._due, kind="stable")[:count].astype(np.int64)

    def in_control(self, seats: I64, share: float) -> "np.typing.NDArray[np.bool_]":
        """Return whether each one's next slate is a random one: drawn for each slate, so both arms see all people."""
        return draws(self._seed, _ARM, self.person[seats], self.slate[seats]) < share

    def has_seen(self, seats: I64, film: I64) -> None:
        """Note that these had their slates and what they took, or NOBODY; those at the end of their stay leave."""
        self.taken[seats, self.slate[seats]] = film
        goes_on = draws(self._seed, _GOES_ON, self.person[seats], self.slate[seats]) >= 1.0 / _SESSION_SLATES
        self.session[seats] += ~goes_on
        self.slate[seats] += 1
        self._due[seats] += np.where(goes_on, self._gap(seats), self._pause(seats))
        left = seats[self.slate[seats] >= stays(self._seed, self.person[seats])]
        self.person[left] = np.arange(self._next, self._next + len(left))
        self._next += len(left)
        self.taken[left], self.slate[left], self.session[left] = NOBODY, 0, 0

    def _gap(self, seats: I64) -> F64:
        chance = draws(self._seed, _GAP, self.person[seats], self.slate[seats])
        return np.asarray(-np.log1p(-chance), np.float64)

    def _pause(self, seats: I64) -> F64:
        return _PAUSE * self._gap(seats) / activity(self._seed, self.person[seats])
