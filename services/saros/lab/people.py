"""Made-up people and films: who likes what, and who clicks what of a slate. Nothing here knows a service, or the time.

The ground truth is a factor model. A film has a place among the genres and a quality, a person a taste for genres:

    P(like) = σ(BASE + quality + AFFINITY · taste·place)

The odds that quality gives fall with the film's rank as a power, as popularity does. A person looks at a slate from
the top, sees the film at rank k with probability k^-½, takes the first that it sees and likes, and goes to watch it: a
slate gives one click at most. Nobody takes a film twice.

Everything is a function of the seed and of what it is about: a film, a person, the number of its slate. It is drawn by
hashing these, never from a generator with a state, so the same person makes the same choice of the same slate, whatever
else happened before, and whenever.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
Flags = NDArray[np.bool_]

GENRES = ("drama", "comedy", "thriller", "science fiction", "horror", "romance", "documentary", "animation")
NOBODY = -1  # in place of a film: there is none

BASE, AFFINITY = -4.0, 4.0
QUALITY_POWER = 0.4  # odds fall with rank^-0.4
LOOK_POWER = 0.5
DRIFT = 0.01  # radians that a taste turns from slate to slate
ACTIVITY_POWER, ACTIVITY_MAX = 1.5, 20.0
# A person leaves for good after so many slates, and one that nobody knows comes. A gate counts blocks over days, and
# people who look at slates without an end would soon have more of them than it lets pass. The most is below its B.
STAY_POWER, STAY_MIN, STAY_MAX = 1.3, 12, 45

# What is drawn, so that no two draws are the same one.
_PLACE, _SECOND, _RANK, _WORDS, _TASTE, _ACTIVITY, _STAY, _SEE, _LIKE, _SHOW = range(10)

_FIRST = (
    "Silent", "Crimson", "Last", "Hidden", "Golden", "Broken", "Distant", "Wild", "Paper", "Burning", "Frozen",
    "Secret", "Lonely", "Electric", "Velvet", "Restless", "Hollow", "Bright", "Midnight", "Salt", "Iron", "Borrowed",
    "Little", "Northern", "Second", "Painted", "Quiet", "Falling", "Glass", "Endless",
)  # fmt: skip
_LAST = (
    "Harbour", "Garden", "Letter", "Orbit", "Witness", "Summer", "Engine", "Kingdom", "Mirror", "River", "Stranger",
    "Promise", "Forest", "Signal", "Carnival", "Island", "Detective", "Winter", "Station", "Voyage", "Orchard", "Tower",
    "Dancer", "Shadow", "Bridge", "Machine", "Planet", "Wedding", "Highway", "Lantern", "Fugitive", "Tide", "Parade",
    "Castle", "Violin", "Comet", "Border", "Circus", "Meadow", "Ghost",
)  # fmt: skip


def draws(seed: int, *about: ArrayLike) -> F64:
    """Return numbers from 0 to 1, each a function of the seed and of what it is about (whole numbers, broadcast)."""
    with np.errstate(over="ignore"):  # it is meant to wrap
        mixed = _mixed(np.asarray(seed, np.uint64))
        for one in about:
            mixed = _mixed(mixed ^ _mixed(np.asarray(one).astype(np.uint64)))
    return np.asarray((mixed >> np.uint64(11)) * 2.0**-53, np.float64)


def _mixed(x: U64) -> U64:
    """splitmix64: neighbours become strangers."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _normals(seed: int, *about: ArrayLike) -> F64:
    """Return normal numbers (Box and Muller's way)."""
    one, other = draws(seed, *about, 0), draws(seed, *about, 1)
    return np.asarray(np.sqrt(-2.0 * np.log1p(-one)) * np.cos(2.0 * np.pi * other), np.float64)


def _unit(rows: F64) -> F64:
    return np.asarray(rows / np.linalg.norm(rows, axis=-1, keepdims=True), np.float64)


class World(NamedTuple):
    """The films: f of them. One more row stands for all that is not of this world: nobody likes it."""

    seed: int
    place: F64  # [f + 1, genres], of length 1
    quality: F64  # [f + 1]
    genre: I64  # [f] the one it is most of
    second: I64  # [f] another, or NOBODY

    @property
    def films(self) -> int:
        """How many there are."""
        return len(self.genre)

    def poorest(self, count: int) -> I64:
        """Return the films of the least quality."""
        return np.argsort(self.quality[: self.films], kind="stable")[:count]


def new_world(seed: int, films: int) -> World:
    """Return so many films."""
    assert films >= 1, films
    film = np.arange(films)
    genre = (draws(seed, _PLACE, film) * len(GENRES)).astype(np.int64)
    chance = draws(seed, _SECOND, film)
    other = (genre + 1 + (chance * 1e6).astype(np.int64) % (len(GENRES) - 1)) % len(GENRES)
    second = np.where(chance < 0.4, other, NOBODY)
    axes = np.eye(len(GENRES))
    place = axes[genre] + 0.5 * np.where(second >= 0, 1.0, 0.0)[:, None] * axes[other]
    place += 0.15 * _normals(seed, _PLACE, film[:, None], np.arange(len(GENRES)))
    rank = np.argsort(np.argsort(draws(seed, _RANK, film), kind="stable"), kind="stable") + 1
    quality = -QUALITY_POWER * np.log(rank / films) - QUALITY_POWER  # its mean is 0
    return World(seed, np.vstack([_unit(place), axes[:1]]), np.append(quality, -np.inf), genre, second)


def film_id(film: int) -> str:
    """Return what a film is called in events."""
    return f"film-{film + 1:04d}"


def film_of(item_id: str, films: int) -> int:
    """Return the film of an id; `films`, the stranger, for all other ids."""
    head, _, number = item_id.partition("-")
    if head == "film" and number.isascii() and number.isdecimal() and len(number) <= 9:
        film = int(number) - 1
        if 0 <= film < films and film_id(film) == item_id:
            return film
    return films


def categories(world: World, film: int) -> list[str]:
    """Return the genres of a film."""
    return [GENRES[genre] for genre in (int(world.genre[film]), int(world.second[film])) if genre >= 0]


def properties(world: World, film: int) -> dict[str, str]:
    """Return what a page can show of a film. All titles of a world differ."""
    first_words, pairs = len(_FIRST), len(_FIRST) * len(_LAST)
    turn = int(draws(world.seed, _WORDS, 0) * pairs)
    # 7919 is prime to the number of pairs: each comes once before any comes again.
    at, part = (turn + 7919 * film) % pairs, film // pairs
    title = f"The {_FIRST[at % first_words]} {_LAST[at // first_words]}"
    year = 1960 + int(draws(world.seed, _WORDS, 1, film) * 66)
    return {"title": f"{title} {part + 1}" if part else title, "year": str(year)}


def tastes(seed: int, person: ArrayLike, slate: ArrayLike) -> F64:
    """Return tastes [n, genres], of length 1: a person loves a genre or two. With each slate it turns by DRIFT, in a
    plane of its own, so it goes far from where it began only slowly."""
    person, angle = np.atleast_1d(person), DRIFT * np.atleast_1d(slate).astype(np.float64)
    count = len(GENRES)
    first = (draws(seed, _TASTE, person) * count).astype(np.int64)
    other = (first + 1 + (draws(seed, _TASTE, person, 1) * (count - 1)).astype(np.int64)) % count
    liked = np.eye(count)[first] + 0.7 * np.eye(count)[other]
    liked += 0.15 * _normals(seed, _TASTE, person[:, None], 2 + np.arange(count))
    start = _unit(liked - liked.mean(axis=1, keepdims=True))
    away = _normals(seed, _TASTE, person[:, None], 2 + count + np.arange(count))
    away = _unit(away - (away * start).sum(axis=1, keepdims=True) * start)
    return np.cos(angle)[:, None] * start + np.sin(angle)[:, None] * away


def activity(seed: int, person: ArrayLike) -> F64:
    """Return how often people look at slates, beside others: a power law from 1 on."""
    return np.minimum(ACTIVITY_MAX, (1.0 - draws(seed, _ACTIVITY, person)) ** (-1.0 / ACTIVITY_POWER))


def stays(seed: int, person: ArrayLike) -> I64:
    """Return after how many slates people leave: a power law, with a most."""
    long = STAY_MIN * (1.0 - draws(seed, _STAY, person)) ** (-1.0 / STAY_POWER)
    return np.minimum(STAY_MAX, long).astype(np.int64)


def liking(world: World, taste: F64, film: I64) -> F64:
    """Return the probability that people (tastes [n, genres]) like films [n, k], if they see them."""
    match = np.einsum("ng,nkg->nk", taste, world.place[film])
    return np.asarray(1.0 / (1.0 + np.exp(-(BASE + world.quality[film] + AFFINITY * match))), np.float64)


def look(places: int) -> F64:
    """Return the probability that a film is seen, by its place in the slate."""
    return np.arange(1, places + 1, dtype=np.float64) ** -LOOK_POWER


def choose(world: World, person: I64, slate: I64, shown: I64, taken: I64) -> I64:
    """Return the place [n] of the film that each person takes of its slate, or NOBODY.

    person, slate: [n]; shown: films [n, k], NOBODY behind the end of a short slate; taken: films [n, t] that the person
    took before, NOBODY where there are less.
    """
    there = shown != NOBODY
    film = np.where(there, shown, world.films)
    places = np.arange(shown.shape[1])
    seen = draws(world.seed, _SEE, person[:, None], slate[:, None], places) < look(shown.shape[1])
    likes = draws(world.seed, _LIKE, person[:, None], slate[:, None], film) < liking(
        world, tastes(world.seed, person, slate), film
    )
    again = (film[:, :, None] == taken[:, None, :]).any(axis=2)
    takes = there & seen & likes & ~again
    return np.where(takes.any(axis=1), takes.argmax(axis=1), NOBODY)


def at_random(world: World, person: I64, slate: I64, taken: I64, places: int) -> I64:
    """Return a slate [n, places] of films drawn evenly for each person, less those that it took before; NOBODY where
    there are not as many."""
    keys = draws(world.seed, _SHOW, person[:, None], slate[:, None], np.arange(world.films))
    rows, columns = np.nonzero(taken != NOBODY)
    film = taken[rows, columns]
    ours = film < world.films
    keys[rows[ours], film[ours]] = 2.0
    order = np.argsort(keys, axis=1)[:, :places].astype(np.int64)
    order[np.take_along_axis(keys, order, axis=1) > 1.0] = NOBODY
    missing = places - order.shape[1]
    return np.pad(order, ((0, 0), (0, missing)), constant_values=NOBODY) if missing > 0 else order
