"""Files that hypothesis writes: good ones are read back, bad lines leave no trace, and no bytes are a surprise."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from saros.core.events import TIME_MAX_MS
from saros.errors import InputError
from saros.lab.reading import EVENT_ENDINGS, RATING_ENDINGS, read
from tests.lab.files import BOM, CLICK_LINE, RATING_LINE, as_csv, as_events, assert_same, write
from tests.lab.logs import Line, log_of

# Bad wherever they stand, and full of names that must not appear.
BAD_EVENTS = (b"{", b"7", b"\xff", b'{"user":"new","item":"new","kind":"clik","time":1}',
              b'{"user":"new","items":["new",""],"kind":"impression","time":1}',
              b'{"user":"","item":"new","kind":"click","time":1}')  # fmt: skip
BAD_RATINGS = (b"new", b"\xff", b"new,new,x,1", b"new,,5,1", b"new,new,5,-1", b'"new,new,5,1', b"new\tnew\tx\ty\tz")

ids = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
one_line_ids = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n"), min_size=1, max_size=20)
times_ms = st.integers(0, TIME_MAX_MS) | st.integers(0, 5000)


def lines_of(ids: st.SearchStrategy[str], kinds: Sequence[str], slate: int) -> st.SearchStrategy[list[Line]]:
    """Lines of few users and items, so that they come again."""

    def of(names: list[str]) -> st.SearchStrategy[list[Line]]:
        slates = st.lists(st.sampled_from(names), min_size=1, max_size=slate).map(tuple)
        return st.lists(
            st.tuples(st.sampled_from(names), st.sampled_from(kinds), slates, times_ms).map(
                lambda line: line if line[1] == "impression" else (line[0], line[1], line[2][:1], line[3])
            ),
            min_size=1,
            max_size=30,
        )

    return st.lists(ids, min_size=1, max_size=5).flatmap(of)


event_lines = lines_of(ids, ("impression", "click", "negative", "positive"), slate=4)
rating_lines = lines_of(one_line_ids, ("click", "negative"), slate=1)


@given(event_lines, st.sampled_from((b"\n", b"\r\n", b"\n\n", b"\n \t\r\n")), st.booleans())
def test_events_are_read_back_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, lines: list[Line], end: bytes, bom: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "some.log.jsonl"
    write(path, BOM * bom, end.join(as_events(lines)), end * (not bom))
    assert_same(read(path), log_of(lines, name="some.log"))


@given(rating_lines, st.sampled_from((b"\n", b"\r\n", b"\n\n")), st.booleans())
def test_ratings_are_read_back_as_they_were_written(
    tmp_path_factory: pytest.TempPathFactory, lines: list[Line], end: bytes, bom: bool
) -> None:
    path = tmp_path_factory.getbasetemp() / "some.ratings.csv"
    write(path, BOM * bom, end.join(as_csv(lines)), end * (not bom))
    assert_same(read(path), log_of(lines, name="some.ratings", sessions=False))


@given(st.data(), st.booleans())
def test_bad_lines_leave_no_trace(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, rated: bool) -> None:
    few = data.draw(rating_lines if rated else event_lines)
    bad = data.draw(st.lists(st.sampled_from(BAD_RATINGS if rated else BAD_EVENTS), max_size=3))
    lines = few * (300 // len(few) + 1)
    written = as_csv(lines) if rated else as_events(lines)
    for line in bad:
        written.insert(data.draw(st.integers(0, len(written)) | st.just(0)), line)
    path = write(tmp_path_factory.getbasetemp() / ("bad.csv" if rated else "bad.jsonl"), b"\n".join(written))
    told: list[int] = []
    assert_same(read(path, on_bad=lambda line, _: told.append(line)), log_of(lines, name="bad", sessions=not rated))
    known_bad = BAD_RATINGS if rated else BAD_EVENTS
    assert told == [number for number, line in enumerate(written, start=1) if line in known_bad]


fragments = st.sampled_from(
    (b"\n", b"\r", b",", b"\t", b"::", b'"', b"{", b"}", b"[", b":", b" ", b"5", b"1e999", b"nan", b"\x00", b"ann",
     b"user", b"item", b"rating", b"time", b'"user":', b'"kind":', b"\xed\xa0", BOM, CLICK_LINE, RATING_LINE)
)  # fmt: skip


@given(
    st.binary(max_size=200) | st.lists(fragments, max_size=30).map(b"".join),
    st.sampled_from(EVENT_ENDINGS + RATING_ENDINGS),
)
def test_any_bytes_are_a_log_or_an_input_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, ending: str
) -> None:
    path = write(tmp_path_factory.getbasetemp() / f"any{ending}", content)
    try:
        log = read(path)
    except InputError:
        return
    assert 1 <= len(log.user) == len(log.kind) == len(log.time_ms) == len(log.start) - 1
    assert len(log.item) == log.start[-1]
