"""How well scores rank the items each user was shown: MAP@K, NDCG@K and the pairwise test loss (Eq. 1 of the paper).

Only a user's own test items are ranked: by descending score, equal scores in input order. Two readings of the metrics,
always reported together, because they differ by about .13 on the same ranking:
- `authors`: what the paper reports. Users with no positive or a single item are skipped; AP@K is divided by the hits
  within K; a hit at rank r gains 1 / log2(max(r, 2)), so that ranks 1 and 2 weigh the same; the ideal is the user's own
  top 10 sorted by label, whatever else the user has. (The paper prints log2(1 + r); its numbers come from this one.)
- `standard`: users with no positive are skipped; AP@K is divided by min(K, positives); a hit at rank r gains
  1 / log2(1 + r); the ideal has all positives first.

Invariants: every mean lies in [0, 1] and is 0 over no users; no result is NaN; sums run in user order, in float64.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from saros.core.jit import F64, I64, U8, allocating_kernel, kernel

CUTOFFS = (5, 10)

# A hit at rank r gains 1 / log2(max(r + offset, 2)).
_AUTHORS = 0
_STANDARD = 1

# The authors sort the labels of the ten best for every cutoff. Beyond 10, which the paper has not, it is the K best:
# an ideal must not be shorter than the list it judges.
_AUTHORS_DEPTH = 10


class Means(NamedTuple):
    """MAP@K and NDCG@K by cutoff K, over the users that count."""

    map_at: dict[int, float]
    ndcg_at: dict[int, float]
    users: int


class Ranking(NamedTuple):
    """What `rank` measured; `loss` is Eq. 1 over `loss_users`, those with both a positive and a negative."""

    authors: Means
    standard: Means
    loss: float
    loss_users: int


@kernel
def _average_precision(labels: U8, cutoff: int) -> tuple[float, int]:
    """Return the sum over hits at rank r <= cutoff of precision@r, and the hits; labels: uint8[n] in ranked order."""
    total = 0.0
    hits = 0
    for at in range(min(cutoff, len(labels))):
        if labels[at]:
            hits += 1
            total += hits / (at + 1)
    return total, hits


@kernel
def _dcg(labels: U8, cutoff: int, offset: int) -> float:
    """Return the gains of the hits at ranks up to cutoff; labels: uint8[n] in ranked order."""
    total = 0.0
    for at in range(min(cutoff, len(labels))):
        if labels[at]:
            total += 1.0 / math.log2(max(at + 1 + offset, 2))
    return total


@kernel
def _ideal_dcg(positives: int, cutoff: int, offset: int) -> float:
    """Return the gains at ranks up to cutoff of a list that starts with all its positives."""
    total = 0.0
    for at in range(min(cutoff, positives)):
        total += 1.0 / math.log2(max(at + 1 + offset, 2))
    return total


@allocating_kernel
def _measure(scores: F64, labels: U8, starts: I64, cutoffs: I64, sums: F64, users: I64) -> None:
    """Add up the metrics of all users.

    scores: float64[n], no NaN; labels: uint8[n], 0 or 1; starts: int64[m + 1], rising from 0 to n; cutoffs: int64[k].
    sums: float64[4, k], rows authors' MAP and NDCG, standard MAP and NDCG; users: int64[2], authors' and standard.
    """
    for user in range(len(starts) - 1):
        begin, end = starts[user], starts[user + 1]
        positives = int(np.int64(np.sum(labels[begin:end])))
        if positives == 0:
            continue
        ranked = labels[begin:end][np.argsort(-scores[begin:end], kind="mergesort")]
        counts = end - begin > 1
        users[0] += np.int64(counts)
        users[1] += 1
        for k in range(len(cutoffs)):
            cutoff = cutoffs[k]
            precision, hits = _average_precision(ranked, cutoff)
            sums[2, k] += precision / min(cutoff, positives)
            sums[3, k] += _dcg(ranked, cutoff, _STANDARD) / _ideal_dcg(positives, cutoff, _STANDARD)
            if counts and hits > 0:
                sums[0, k] += precision / hits
                best = int(np.int64(np.sum(ranked[: max(cutoff, _AUTHORS_DEPTH)])))
                sums[1, k] += _dcg(ranked, cutoff, _AUTHORS) / _ideal_dcg(best, cutoff, _AUTHORS)


@kernel
def _softplus(x: float) -> float:
    """Return log(1 + exp(x)) without overflow."""
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@allocating_kernel
def _pair_loss(scores: F64, labels: U8, starts: I64) -> tuple[float, int]:
    """Return the sum over users of Eq. 1, mean over pairs of log(1 + exp(-(s_i - s_j))), and the users that have pairs.

    scores: float64[n], no NaN; labels: uint8[n], 0 or 1; starts: int64[m + 1], rising from 0 to n.
    """
    total = 0.0
    users = 0
    for user in range(len(starts) - 1):
        own = scores[starts[user] : starts[user + 1]]
        clicked = labels[starts[user] : starts[user + 1]] == 1
        positives = own[clicked]
        negatives = own[~clicked]
        if len(positives) == 0 or len(negatives) == 0:
            continue
        loss = 0.0
        for i in range(len(positives)):
            for j in range(len(negatives)):
                # Equal scores may be equal infinities, whose difference is NaN.
                margin = 0.0 if positives[i] == negatives[j] else positives[i] - negatives[j]
                loss += _softplus(-margin)
        total += loss / (len(positives) * len(negatives))
        users += 1
    return total, users


def _check(scores: NDArray[np.floating], labels: NDArray[np.integer | np.bool_], starts: I64, cutoffs: I64) -> None:
    """Refuse columns that do not fit together."""
    if scores.dtype not in (np.float32, np.float64) or scores.ndim != 1:
        raise ValueError(f"scores must be one-dimensional float32 or float64, not {scores.dtype} of {scores.shape}")
    if labels.dtype not in (np.uint8, np.bool_) or labels.shape != scores.shape:
        raise ValueError(f"labels must be uint8 or bool of shape {scores.shape}, not {labels.dtype} of {labels.shape}")
    if starts.dtype != np.int64 or starts.ndim != 1 or len(starts) == 0:
        raise ValueError(f"starts must be one-dimensional int64 and not empty, not {starts.dtype} of {starts.shape}")
    if starts[0] != 0 or starts[-1] != len(scores) or np.any(starts[1:] < starts[:-1]):
        raise ValueError(f"starts must rise from 0 to {len(scores)}, the number of scores")
    if np.isnan(scores).any():
        raise ValueError(f"score {np.flatnonzero(np.isnan(scores))[0]} is NaN")
    if labels.dtype == np.uint8 and np.any(labels > 1):
        raise ValueError(f"label {np.flatnonzero(labels > 1)[0]} is neither 0 nor 1")
    if len(cutoffs) == 0 or cutoffs.min() < 1:
        raise ValueError(f"cutoffs must be one or more numbers from 1 on, not {cutoffs.tolist()}")


def _means(cutoffs: I64, sums: F64, users: int) -> Means:
    """Divide the sums of two metrics, float64[2, k], by their users."""
    maps, ndcgs = (sums / max(users, 1)).tolist()
    names = cutoffs.tolist()
    return Means(dict(zip(names, maps, strict=True)), dict(zip(names, ndcgs, strict=True)), users)


def rank(
    scores: NDArray[np.floating],
    labels: NDArray[np.integer | np.bool_],
    starts: I64,
    cutoffs: Sequence[int] = CUTOFFS,
) -> Ranking:
    """Measure how scores (float32 or float64[n]) rank items whose label (uint8 or bool[n]) is 1 above the others.

    User u has the items starts[u] to starts[u + 1] (int64[users + 1]). Scores may be infinite, not NaN.
    """
    depths = np.array(cutoffs, np.int64)
    _check(scores, labels, starts, depths)
    exact = np.ascontiguousarray(scores, np.float64)
    marks = np.ascontiguousarray(labels, np.uint8)
    bounds = np.ascontiguousarray(starts)
    sums = np.zeros((4, len(depths)))
    users = np.zeros(2, np.int64)
    _measure(exact, marks, bounds, depths, sums, users)
    loss, loss_users = _pair_loss(exact, marks, bounds)
    return Ranking(
        authors=_means(depths, sums[:2], int(users[0])),
        standard=_means(depths, sums[2:], int(users[1])),
        loss=loss / max(loss_users, 1),
        loss_users=loss_users,
    )
