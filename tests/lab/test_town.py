"""Who is there and who is next: everybody stays as long as it should, and the seed says all."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from saros.lab.people import NOBODY, activity, stays
from saros.lab.town import Town, user_id


def slates(town: Town, rounds: int, count: int) -> list[tuple[int, int, int]]:
    """Let people look at slates; return person, number of its slate and of its session for each."""
    seen = []
    for _ in range(rounds):
        seats = town.next(count)
        mine = (town.person[seats].tolist(), town.slate[seats].tolist(), town.session[seats].tolist())
        seen += list(zip(*mine, strict=True))
        town.has_seen(seats, np.arange(len(seats)))
    return seen


@given(st.integers(0, 2**63 - 1), st.integers(1, 20), st.integers(1, 30), st.integers(1, 1000))
@settings(max_examples=25)
def test_people_come_stay_and_leave(seed: int, seats: int, count: int, first: int) -> None:
    town, by_person = Town(seed, seats, first), dict[int, list[tuple[int, int]]]()
    here = dict(zip(town.person.tolist(), town.slate.tolist(), strict=True))
    assert sorted(here) == list(range(first, first + seats))
    for person, slate, session in slates(town, 60, count):
        by_person.setdefault(person, []).append((slate, session))
    present = set(town.person.tolist())
    for person, seen in by_person.items():
        begun = here.get(person, 0)
        assert [slate for slate, _ in seen] == list(range(begun, begun + len(seen))), "one slate after the other"
        sessions = [session for _, session in seen]
        assert sessions[0] == 0
        assert set(np.diff(sessions)) <= {0, 1}
        left = begun + len(seen) == stays(seed, person)
        assert left == (person not in present), "who has had its slates leaves, and nobody else"
    assert len(present) == seats
    assert town.newest == max(present | set(by_person))
    assert set(range(first, town.newest + 1)) == present | set(by_person), "numbers come one by one, and never again"


def test_no_one_is_next_twice_and_newcomers_have_taken_nothing() -> None:
    town = Town(1, 40)
    for _ in range(100):
        seats = town.next(1000)
        assert sorted(seats.tolist()) == list(range(40)), "as many as there are at most"
        before = town.person.copy()
        town.has_seen(seats, np.full(len(seats), 9))
        fresh = town.person != before
        assert (town.taken[fresh] == NOBODY).all()
        assert (town.slate[fresh] == 0).all()
        own = np.array([(row == 9).sum() for row in town.taken])
        assert (own[~fresh] > 0).all()
    assert user_id(int(town.person[0])) == f"u{town.person[0]}"


def test_the_seed_says_who_comes_when() -> None:
    assert slates(Town(3, 30), 50, 7) == slates(Town(3, 30), 50, 7)
    assert slates(Town(3, 30), 50, 7) != slates(Town(4, 30), 50, 7)


def test_the_active_look_at_more_and_sessions_have_five_slates_or_so() -> None:
    town = Town(2, 500)
    seen = slates(town, 400, 50)
    per_session: dict[tuple[int, int], int] = {}
    for person, _, session in seen:
        per_session[person, session] = per_session.get((person, session), 0) + 1
    # A stay of up to 45 slates cuts some short.
    assert 3.0 < np.mean(list(per_session.values())) < 5.5
    there = np.arange(1, 501)
    busy = activity(2, there) > 4
    last = np.array([max(at for at, one in enumerate(seen) if one[0] == person) for person in there.tolist()])
    assert np.median(last[busy]) < np.median(last[~busy]), "they are through with their slates sooner"


def test_both_arms_see_the_same_people() -> None:
    town = Town(5, 300)
    arms = dict[int, list[bool]]()
    for _ in range(30):
        seats = town.next(300)
        for person, control in zip(town.person[seats].tolist(), town.in_control(seats, 0.3).tolist(), strict=True):
            arms.setdefault(person, []).append(control)
        assert not town.in_control(seats, 0.0).any()
        assert town.in_control(seats, 1.0).all()
        town.has_seen(seats, np.full(len(seats), NOBODY))
    drawn = [control for each in arms.values() for control in each]
    assert abs(np.mean(drawn) - 0.3) < 4 * (0.21 / len(drawn)) ** 0.5
    long = [each for each in arms.values() if len(each) >= 20]
    assert all(0 < sum(each) < len(each) for each in long), "each person has slates of both"
