"""People and films are what they are said to be, by formulas written out here, and functions of the seed alone."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saros.lab import people
from saros.lab.people import GENRES, I64, NOBODY, World

SEEDS = st.integers(0, 2**63 - 1)
WORLD = people.new_world(7, 200)
CROWD = np.arange(1, 20_001)


def empty(rows: int) -> I64:
    return np.full((rows, 3), NOBODY)


def likes(world: World, person: int, slate: int, film: int) -> float:
    """Return the probability that a person likes a film it sees, number by number."""
    taste = people.tastes(world.seed, person, slate)[0].tolist()
    match = sum(mine * its for mine, its in zip(taste, world.place[film].tolist(), strict=True))
    return 1 / (1 + math.exp(-(-4.0 + float(world.quality[film]) + 4.0 * match)))


# --- what is drawn ---------------------------------------------------------------------------------------------------


def test_draws_are_even_and_neighbours_are_strangers() -> None:
    drawn = people.draws(3, 1, np.arange(100_000))
    assert ((drawn >= 0) & (drawn < 1)).all()
    counts, _ = np.histogram(drawn, bins=50, range=(0, 1))
    assert ((counts - 2000) ** 2 / 2000).sum() < 95, "chi², 49 degrees: beyond it once in 10,000"
    assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 0.02
    assert abs(np.corrcoef(drawn, people.draws(4, 1, np.arange(100_000)))[0, 1]) < 0.02, "another seed, other draws"
    assert abs(np.corrcoef(drawn, people.draws(3, 2, np.arange(100_000)))[0, 1]) < 0.02, "another subject, too"


@given(SEEDS, st.lists(st.integers(0, 2**40), min_size=1, max_size=8))
def test_a_draw_depends_on_nothing_but_what_it_is_about(seed: int, about: list[int]) -> None:
    whole = people.draws(seed, 5, np.array(about)[:, None], np.arange(3))
    assert whole.shape == (len(about), 3)
    alone = [[float(people.draws(seed, 5, one, place)) for place in range(3)] for one in about]
    assert whole.tolist() == alone


# --- films -----------------------------------------------------------------------------------------------------------


@given(SEEDS, st.integers(1, 400))
@settings(max_examples=30)
def test_quality_falls_with_rank_as_a_power(seed: int, films: int) -> None:
    world = people.new_world(seed, films)
    assert world.films == films
    assert world.place.shape == (films + 1, len(GENRES))
    np.testing.assert_allclose(np.linalg.norm(world.place, axis=1), 1.0)
    odds = np.exp(np.sort(world.quality[:films])[::-1])
    np.testing.assert_allclose(odds / odds[0], np.arange(1, films + 1) ** -0.4)
    assert world.quality[films] == -np.inf, "nobody likes what is not of this world"
    poorest = world.poorest(min(10, films)).tolist()
    assert len(set(poorest)) == min(10, films)
    assert max(world.quality[poorest]) <= np.sort(world.quality[:films])[min(10, films) - 1]


def test_a_film_is_most_of_its_own_genre() -> None:
    assert (WORLD.place[: WORLD.films].argmax(axis=1) == WORLD.genre).mean() > 0.95
    assert set(WORLD.genre.tolist()) == set(range(len(GENRES)))
    for film in range(WORLD.films):
        named = people.categories(WORLD, film)
        assert named[0] == GENRES[WORLD.genre[film]]
        assert len(named) == len(set(named)) == 1 + (WORLD.second[film] != NOBODY)
    assert 0.3 < (WORLD.second != NOBODY).mean() < 0.5


def test_films_have_titles_of_their_own() -> None:
    world = people.new_world(0, 3000)
    told = [people.properties(world, film) for film in range(world.films)]
    assert len({one["title"] for one in told}) == world.films
    assert all(1960 <= int(one["year"]) <= 2025 for one in told)


@given(st.integers(0, 20_000), st.integers(1, 10_000))
def test_an_id_leads_back_to_its_film(film: int, films: int) -> None:
    assert people.film_of(people.film_id(film), films) == (film if film < films else films)


@given(st.text() | st.from_regex(r"film-\d*", fullmatch=True))
def test_any_other_id_is_a_stranger(item_id: str) -> None:
    film = people.film_of(item_id, 50)
    assert film == 50 or people.film_id(film) == item_id


# --- people ----------------------------------------------------------------------------------------------------------


@given(SEEDS, st.integers(1, 2**40), st.integers(0, 500))
@settings(max_examples=50)
def test_a_taste_turns_a_little_with_each_slate(seed: int, person: int, slate: int) -> None:
    begun, now = people.tastes(seed, person, 0)[0], people.tastes(seed, person, slate)[0]
    assert np.linalg.norm(now) == pytest.approx(1.0)
    assert float(begun @ now) == pytest.approx(math.cos(0.01 * slate))


def test_few_are_very_active_and_few_stay_for_long() -> None:
    active = people.activity(0, CROWD)
    assert (active.min() >= 1.0, active.max()) == (True, 20.0)
    for level in (2.0, 4.0, 10.0):
        share = level**-1.5
        assert abs((active > level).mean() - share) < 4 * math.sqrt(share / len(CROWD)), level
    long = people.stays(0, CROWD)
    assert (long.min(), long.max()) == (12, 45)
    for level in (18, 24, 36):
        share = (level / 12) ** -1.3
        assert abs((long >= level).mean() - share) < 4 * math.sqrt(share / len(CROWD)), level


def test_liking_is_the_formula() -> None:
    person, slate, film = np.array([1, 2, 77]), np.array([0, 9, 30]), np.array([[0, 5], [199, 5], [3, 200]])
    found = people.liking(WORLD, people.tastes(WORLD.seed, person, slate), film)
    for row in range(3):
        for place in range(2):
            if film[row, place] < WORLD.films:
                assert found[row, place] == pytest.approx(
                    likes(WORLD, int(person[row]), int(slate[row]), int(film[row, place]))
                )
    assert found[2, 1] == 0.0, "the stranger"


def test_a_choice_is_the_first_film_that_is_seen_and_liked() -> None:
    """Clicks by place are as many as the probabilities make them: place k is looked at with k^-½."""
    count, best = 4000, np.argsort(-WORLD.quality[: WORLD.films])[:3].astype(np.int64)
    person, slate = CROWD[:count], np.zeros(count, np.int64)
    place = people.choose(WORLD, person, slate, np.tile(best, (count, 1)), empty(count))
    free, expected, spread = np.ones(count), np.zeros(3), np.zeros(3)
    chance = people.liking(WORLD, people.tastes(WORLD.seed, person, slate), np.tile(best, (count, 1)))
    for k in range(3):
        takes = free * chance[:, k] * (k + 1) ** -0.5
        expected[k], spread[k] = takes.sum(), math.sqrt((takes * (1 - takes)).sum())
        free *= 1 - chance[:, k] * (k + 1) ** -0.5
    found = np.bincount(place[place != NOBODY], minlength=3)
    assert (np.abs(found - expected) < 4 * spread).all(), (found, expected, spread)
    assert found[2] > 50


@given(SEEDS, st.data())
@settings(max_examples=50)
def test_a_choice_is_ones_own_and_nothing_is_taken_twice(seed: int, data: st.DataObject) -> None:
    world, rows = people.new_world(seed, 12), 6
    films = st.lists(st.integers(NOBODY, world.films), min_size=5, max_size=5)
    shown = np.array([data.draw(films) for _ in range(rows)])
    taken = np.array([data.draw(films) for _ in range(rows)])
    person = np.array(data.draw(st.lists(st.integers(1, 10**6), min_size=rows, max_size=rows)))
    slate = np.array(data.draw(st.lists(st.integers(0, 44), min_size=rows, max_size=rows)))
    place = people.choose(world, person, slate, shown, taken)
    for row, at in enumerate(place.tolist()):
        one = slice(row, row + 1)
        assert people.choose(world, person[one], slate[one], shown[one], taken[one])[0] == at, "whoever else is there"
        if at != NOBODY:
            assert 0 <= shown[row, at] < world.films, "no stranger, and nothing behind the end"
            assert shown[row, at] not in taken[row]
            again = people.choose(world, person[one], slate[one], shown[one], shown[one, at : at + 1])[0]
            assert again == NOBODY or again > at, "once it is taken, only what stands below it is left"


@given(SEEDS, st.integers(1, 15), st.data())
@settings(max_examples=50)
def test_a_random_slate_is_of_films_that_are_new(seed: int, films: int, data: st.DataObject) -> None:
    world = people.new_world(seed, films)
    taken = np.array([data.draw(st.lists(st.integers(NOBODY, films), min_size=4, max_size=4)) for _ in range(3)])
    shown = people.at_random(world, np.array([1, 2, 3]), np.array([0, 0, 9]), taken, 10)
    assert shown.shape == (3, 10)
    for row in range(3):
        fresh = set(range(films)) - set(taken[row].tolist())
        some = shown[row][shown[row] != NOBODY].tolist()
        assert len(some) == len(set(some)) == min(10, len(fresh))
        assert set(some) <= fresh
        assert (shown[row, len(some) :] == NOBODY).all(), "what is missing is missing at the end"


def test_random_slates_are_even() -> None:
    world, count = people.new_world(1, 20), 5000
    shown = people.at_random(world, CROWD[:count], np.zeros(count, np.int64), empty(count), 10)
    for place in (0, 9):
        counts = np.bincount(shown[:, place], minlength=20)
        assert ((counts - count / 20) ** 2 / (count / 20)).sum() < 52, "chi², 19 degrees: beyond it once in 10,000"


def test_the_same_seed_is_the_same_world() -> None:
    one, other = people.new_world(5, 50), people.new_world(5, 50)
    for mine, its in zip(one[1:], other[1:], strict=True):
        np.testing.assert_array_equal(mine, its)
    assert not np.array_equal(one.quality, people.new_world(6, 50).quality)
