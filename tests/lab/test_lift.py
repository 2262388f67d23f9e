"""Rates, their bounds and the lift, against formulas written out and against worlds whose truth is known."""

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saros.lab.lift import ARMS, WINDOW_S, Tally, lift_of, student, wilson
from saros.lab.people import I64, NOBODY

Z = 1.959963984540054
FILMS = 4


@given(st.integers(1, 10**6), st.floats(0, 1))
def test_bounds_of_a_rate_are_where_it_would_just_be_believed(shown: int, share: float) -> None:
    """Wilson's: the rates p from which the one that was seen is Z standard errors of p away."""
    clicked = round(share * shown)
    found = wilson(clicked, shown)
    assert (found.shown, found.clicked, found.rate) == (shown, clicked, clicked / shown)
    assert found.rate is not None
    assert found.low95 is not None
    assert found.high95 is not None
    assert 0 <= found.low95 <= found.rate + 1e-15
    assert found.rate - 1e-15 <= found.high95 <= 1
    for bound in (found.low95, found.high95):
        if 0 < bound < 1:
            away = Z * math.sqrt(bound * (1 - bound) / shown)
            assert abs(found.rate - bound) == pytest.approx(away, rel=1e-6, abs=1e-9)


def test_nothing_shown_is_nothing_known() -> None:
    assert wilson(0, 0) == (0, 0, None, None, None)
    nothing = np.zeros((2, 5), np.int64)
    assert lift_of(nothing, nothing) == (None, None)
    shown = np.full((2, 5), 3)
    assert lift_of(shown, nothing) == (0.0, None), "nobody clicked: that says nothing"


@pytest.mark.parametrize(
    ("degrees", "table"), [(2, 4.303), (3, 3.182), (5, 2.571), (9, 2.262), (30, 2.042), (100, 1.984), (1e9, 1.960)]
)
def test_students_quantile_is_that_of_the_table(degrees: float, table: float) -> None:
    assert student(degrees) == pytest.approx(table, rel=0.035 if degrees < 3 else 0.01 if degrees < 9 else 0.001)


def bound_by_hand(shown: list[list[int]], clicked: list[list[int]]) -> float:
    """Return the lower bound of the lift, film by film as the module's docstring has it."""
    rates, variances, degrees = [], [], []
    for n, c in zip(shown, clicked, strict=True):
        rate, films = sum(c) / sum(n), sum(1 for k in n if k)
        squares = sum((one - rate * of) ** 2 for one, of in zip(c, n, strict=True))
        rates.append(rate)
        variances.append(films / (films - 1) * squares / sum(n) ** 2)
        degrees.append(sum(n) ** 2 / sum(k * k for k in n) - 1)
    both = sum(variances)
    welch = both**2 / sum(v**2 / d for v, d in zip(variances, degrees, strict=True))
    return rates[0] - rates[1] - student(welch) * math.sqrt(both)


@given(st.data())
def test_the_bound_is_the_formula(data: st.DataObject) -> None:
    def arm() -> tuple[list[int], list[int]]:
        pairs = data.draw(st.lists(st.tuples(st.integers(1, 500), st.floats(0, 1)), min_size=6, max_size=6))
        return [of for of, _ in pairs], [round(of * share) for of, share in pairs]

    (n, c), (m, d) = arm(), arm()
    found = lift_of(np.array([n, m]), np.array([c, d]))
    if found.low95 is None:
        assert all(k * sum(n) == of * sum(c) for k, of in zip(c, n, strict=True)), "all films of an arm are as good"
    else:
        assert found.lift == pytest.approx(sum(c) / sum(n) - sum(d) / sum(m), abs=1e-12)
        assert found.low95 == pytest.approx(bound_by_hand([n, m], [c, d]), rel=1e-6, abs=1e-9)


def trial(seed: int, gain: float) -> tuple[float, float]:
    """Films of which some are better than others; ten are shown to all by a model whose choice is chance, or the best
    `gain` of them. Return the bound of the lift, and that of somebody who forgets that these are ten films only."""
    rng = np.random.default_rng(seed)
    rates = np.clip(rng.gamma(1.0, 0.03, 100), 0, 1)
    chosen = rng.choice(np.argsort(-rates)[: max(10, round(100 * (1 - gain)))], 10, replace=False)
    shown: I64 = np.zeros((2, 100), np.int64)
    shown[0, chosen], shown[1] = 700, 30
    clicked = rng.binomial(shown, rates)
    (c, d), (n, m) = clicked.sum(axis=1), shown.sum(axis=1)
    naive = c / n - d / m - Z * math.sqrt(c / n * (1 - c / n) / n + d / m * (1 - d / m) / m)
    return lift_of(shown, clicked).low95 or 0.0, float(naive)


def test_a_model_that_has_learned_nothing_is_not_believed_and_one_that_has_is() -> None:
    """Of 400 worlds without a lift about 2.5 % may look as if there were one. By items alone, 20 % and more do."""
    nothing = [trial(seed, 0.0) for seed in range(400)]
    assert np.mean([bound > 0 for bound, _ in nothing]) < 0.05
    assert np.mean([naive > 0 for _, naive in nothing]) > 0.2, "what the bound by films is for"
    assert np.mean([trial(seed, 0.8)[0] > 0 for seed in range(100)]) > 0.9


# --- what is counted -------------------------------------------------------------------------------------------------

SLATES = st.lists(
    st.tuples(
        st.floats(0, 3.0),  # since the one before
        st.integers(0, 1),
        st.lists(st.integers(0, FILMS), min_size=1, max_size=3),
        st.booleans(),
    ),
    max_size=60,
)


@given(SLATES, st.sampled_from([1, 40]))
@settings(max_examples=100)
def test_a_tally_is_a_recount(slates: list[tuple[float, int, list[int], bool]], slower: int) -> None:
    tally, now_s, told = Tally(FILMS), 0.0, list[tuple[int, int, int, int]]()
    for passed, arm, films, clicks in slates:
        now_s += slower * passed
        row = np.array([films + [NOBODY] * (3 - len(films))])
        tally.add(now_s, np.array([arm]), row, np.array([films[0] if clicks else NOBODY]))
        told += [(int(now_s), arm, film, int(clicks and place == 0)) for place, film in enumerate(films)]
    found = tally.told(now_s)
    since = int(now_s) - WINDOW_S
    for where, seen in ((found, told), (found["recent"], [one for one in told if one[0] > since])):
        for number, name in enumerate(ARMS):
            mine = [one for one in seen if one[1] == number]
            assert (where[name]["shown"], where[name]["clicked"]) == (len(mine), sum(one[3] for one in mine))
    of_late = Counter(film for second, arm, film, _ in told if arm == 0 and second > since)
    share = tally.share_of(now_s, np.array([0, 2]))
    assert share == (pytest.approx((of_late[0] + of_late[2]) / of_late.total()) if of_late else None)
