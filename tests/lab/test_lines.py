"""One line at a time: what an event or a rating may look like, and what is said of one that is wrong."""

import json
from typing import Any

import pytest

from saros.core.events import CLICK, IMPRESSION, NEGATIVE, POSITIVE, SLATE_MAX, TIME_MAX_MS
from saros.errors import InputError
from saros.lab.lines import Entry, RatingParser, parse_event

BIG = "9" * 400
GOOD = {"user": "ann", "item": "alien", "kind": "click", "time": 1000}


def event(**changes: Any) -> str:
    """Return a good event as JSON, with some keys changed and those that are `...` left out."""
    return json.dumps({name: value for name, value in (GOOD | changes).items() if value is not ...})


def parse_ratings(*lines: str, ending: str = ".csv") -> list[Entry | None]:
    parser = RatingParser("ratings", ending)
    return [parser(line) for line in lines]


@pytest.mark.parametrize(
    ("name", "kind"), [("impression", IMPRESSION), ("click", CLICK), ("negative", NEGATIVE), ("positive", POSITIVE)]
)
def test_kinds(name: str, kind: int) -> None:
    assert parse_event(event(kind=name)) == ("ann", kind, 1_000_000, ["alien"])
    assert parse_event(event(kind=name, item=..., items=["alien"])) == ("ann", kind, 1_000_000, ["alien"])


def test_an_impression_names_up_to_a_slate_of_items() -> None:
    slate = [f"item {k}" for k in range(SLATE_MAX)]
    assert parse_event(event(kind="impression", item=..., items=slate))[3] == slate


@pytest.mark.parametrize(
    ("value", "text"),
    [("a", "a"), (" ", " "), ("a\nb", "a\nb"), ("x" * 256, "x" * 256), ("é" * 128, "é" * 128), ("😀" * 64, "😀" * 64),
     (7, "7"), (-7, "-7"), (0, "0"), (10**255, str(10**255))],
)  # fmt: skip
def test_ids_are_short_texts_or_whole_numbers(value: object, text: str) -> None:
    assert parse_event(event(user=value, item=value)) == (text, CLICK, 1_000_000, [text])


@pytest.mark.parametrize(
    ("time", "time_ms"),
    [
        ("0", 0),
        ("0.0", 0),
        ("978300760", 978_300_760_000),
        ("978300760.0", 978_300_760_000),
        ("978300760.123", 978_300_760_123),
        ("0.0004", 0),
        ("0.0006", 1),
        ("99999999999", 99_999_999_999_000),  # the last second: the year 5138
        ("99999999999.9", 99_999_999_999_900),
        ("100000000000", 100_000_000_000),  # the first millisecond: 1973
        ("1e11", 100_000_000_000),
        ("978300760123", 978_300_760_123),
        ("978300760123.6", 978_300_760_124),
        (str(TIME_MAX_MS), TIME_MAX_MS),
    ],
)
def test_times_are_seconds_or_from_1e11_on_milliseconds(time: str, time_ms: int) -> None:
    assert parse_event(event().replace("1000", time))[2] == time_ms
    assert parse_ratings(f"ann,alien,5,{time}") == [("ann", 5.0, time_ms, ("alien",))]


@pytest.mark.parametrize("time", ["-1", "-0.001", str(TIME_MAX_MS + 1), "1e15", "1e300", BIG])
def test_times_outside_the_years_1970_to_9999_are_bad(time: str) -> None:
    with pytest.raises(ValueError, match=r"^time .* is not within the years 1970 to 9999$"):
        parse_event(event().replace("1000", time))
    with pytest.raises(ValueError, match=r"^time .* is not (within the years 1970 to 9999|a number)$"):
        parse_ratings(f"ann,alien,5,{time}")


@pytest.mark.parametrize("time", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_times_without_a_value_are_bad(time: str) -> None:
    with pytest.raises(ValueError, match=r"^time -?(nan|inf) is not within the years 1970 to 9999$"):
        parse_event(event().replace("1000", time))
    with pytest.raises(ValueError, match=rf"^time '{time}' is not a number$"):
        parse_ratings(f"ann,alien,5,{time}")


def test_other_keys_are_ignored_and_the_last_of_two_wins() -> None:
    assert parse_event(event(page=3, session=None, weight=[{}])) == parse_event(event())
    assert parse_event(event()[:-1] + ', "item": "brazil"}')[3] == ["brazil"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON: Expecting property name enclosed in double quotes at column 2"),
        ("\ufeff{}", "not JSON: Unexpected UTF-8 BOM (decode using utf-8-sig) at column 1"),
        ("[" * 100_000, "not JSON: nested too deeply"),
        (event().replace("1000", "1" * 5000), "not JSON: a number is too long"),
        ("[]", "not a JSON object"),
        ("null", "not a JSON object"),
        ("{}", "no kind"),
        (event(kind=...), "no kind"),
        (event(kind="clik"), "kind 'clik' is none of impression, click, negative, positive"),
        (event(kind="erase"), "kind 'erase' is none of impression, click, negative, positive"),
        (event(kind=2), "kind 2 is none of impression, click, negative, positive"),
        (event(kind=["click"]), "kind ['click'] is none of impression, click, negative, positive"),
        (event(user=...), "no user"),
        (event(user=None), "user None is neither text nor a whole number"),
        (event(user=True), "user True is neither text nor a whole number"),
        (event(user=1.5), "user 1.5 is neither text nor a whole number"),
        (event(user={}), "user {} is neither text nor a whole number"),
        (event(user=""), "user has 0 bytes, not 1 to 256"),
        (event(user="x" * 257), "user has 257 bytes, not 1 to 256"),
        (event(user="é" * 129), "user has 258 bytes, not 1 to 256"),
        (event(user=10**256), "user has 257 bytes, not 1 to 256"),
        (event(user="\ud800"), "user '\\ud800' is not UTF-8"),
        (event(item=False), "item False is neither text nor a whole number"),
        (event(item=["a"]), "item ['a'] is neither text nor a whole number"),
        (event(item=...), "neither item nor items"),
        (event(items=["a"]), "both item and items"),
        (event(items=None), "both item and items"),
        (event(item=..., items="a"), "items is not a list"),
        (event(item=..., items=[]), "0 items, not 1"),
        (event(item=..., items=["a", "b"]), "2 items, not 1"),
        (event(kind="negative", item=..., items=["a", "b"]), "2 items, not 1"),
        (event(kind="impression", item=..., items=[]), "0 items, not 1 to 200"),
        (event(kind="impression", item=..., items=["a"] * 201), "201 items, not 1 to 200"),
        (event(kind="impression", item=..., items=["a", ""]), "item has 0 bytes, not 1 to 256"),
        (event(time=...), "no time"),
        (event(time=None), "time None is not a number"),
        (event(time=True), "time True is not a number"),
        (event(time="5"), "time '5' is not a number"),
    ],
)
def test_bad_events(line: str, reason: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 (the reason is compared as a whole)
        parse_event(line)
    assert str(raised.value) == reason


ANN = ("ann", 4.5, 7000, ("alien",))


@pytest.mark.parametrize(
    ("ending", "line"),
    [
        (".csv", "ann,alien,4.5,7"),
        (".csv", '"ann",alien,"4.5",7'),
        (".csv", "ann\talien\t4.5\t7"),
        (".csv", "ann::alien::4.5::7"),
        (".dat", "ann::alien::4.5::7"),
        (".txt", "ann::alien::4.5::7"),
        (".tsv", "ann\talien\t4.5\t7"),
        (".data", "ann\talien\t4.5\t7"),
        (".tsv", "ann,alien, 4.5 , 7 "),
    ],
)
def test_separators(ending: str, line: str) -> None:
    assert parse_ratings(line, ending=ending) == [ANN]


@pytest.mark.parametrize(
    ("header", "line"),
    [
        ("user_id:token\titem_id:token\trating:float\ttimestamp:float", "ann\talien\t4.5\t7"),
        ("timestamp:float\trating:float\titem_id:token\tuser_id:token", "7\t4.5\talien\tann"),
        ("user_id:token\tage:float\titem_id:token\trating:float\ttimestamp:float", "ann\t30\talien\t4.5\t7"),
        ("userId,movieId,rating,timestamp", "ann,alien,4.5,7"),
        ("user,item,score,time", "ann,alien,4.5,7"),
        ("USER_ID , Item_Id, Stars,TS", "ann,alien,4.5,7"),
        ("userid,itemid,rating,ts,note", 'ann,alien,4.5,7,"a, ""b"""'),
        ('"user","movie_id","rating","timestamp"', '"ann","alien","4.5","7"'),
        ("user::item::rating::time", "ann::alien::4.5::7"),
    ],
)
def test_headers(header: str, line: str) -> None:
    assert parse_ratings(header, line) == [None, ANN]


def test_without_a_time_column_all_times_are_zero() -> None:
    assert parse_ratings("item,user,rating", "alien,ann,5") == [None, ("ann", 5.0, 0, ("alien",))]
    assert parse_ratings("ann,alien,5", "ben,brazil,3") == [("ann", 5.0, 0, ("alien",)), ("ben", 3.0, 0, ("brazil",))]


def test_dat_files_have_one_separator() -> None:
    for line in ("ann,alien,4.5,7", "ann\talien\t4.5\t7"):
        with pytest.raises(ValueError, match="1 column, not 4"):
            parse_ratings(line, ending=".dat")


def test_only_csv_knows_quotes() -> None:
    assert parse_ratings('ann,"alien, ""the first""",5,7') == [("ann", 5.0, 7000, ('alien, "the first"',))]
    assert parse_ratings('ann,al"i"en,5,7') == [("ann", 5.0, 7000, ('al"i"en',))]
    assert parse_ratings('ann\t"alien"\t5\t7', ending=".tsv") == [("ann", 5.0, 7000, ('"alien"',))]


def test_a_user_may_be_called_user() -> None:
    assert parse_ratings("user,item,5,7") == [("user", 5.0, 7000, ("item",))]


def test_the_first_line_that_makes_sense_settles_the_columns() -> None:
    parser = RatingParser("ratings", ".csv")
    for line in ("nonsense", "a\tb", "ann,alien,high,7", '"ann'):
        with pytest.raises(ValueError, match=r"column|is not a number|not CSV"):
            parser(line)
    assert parser("item\tuser\trating") is None
    assert parser("alien\tann\t5") == ("ann", 5.0, 0, ("alien",))
    with pytest.raises(ValueError, match="1 column, not 3"):
        parser("ann,alien,5")


@pytest.mark.parametrize(
    ("header", "missing"),
    [
        ("user_id,film,rating", "item"),
        ("name,item,rating", "user"),
        ("user_id,item_id,when", "rating"),
        ("user", "item"),
    ],
)
def test_a_header_that_lacks_a_column_is_refused(header: str, missing: str) -> None:
    with pytest.raises(InputError) as raised:
        parse_ratings(header)
    named = ", ".join(repr(cell) for cell in header.split(","))
    assert raised.value.message == f"the header of ratings names no {missing}, only {named}"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("ann,alien,5", "3 columns, not 4"),
        ("ann", "1 column, not 4"),
        ("ann,alien,5,7,9", "5 columns, not 4"),
        ("ann;alien;5;7", "1 column, not 4"),
        ("ann,alien,x,7", "rating 'x' is not a number"),
        ("ann,alien,,7", "rating '' is not a number"),
        ("ann,alien,nan,7", "rating 'nan' is not a number"),
        ("ann,alien,inf,7", "rating 'inf' is not a number"),
        ("ann,alien,1_0,7", "rating '1_0' is not a number"),
        ("ann,alien,5,", "time '' is not a number"),
        ("ann,alien,5,noon", "time 'noon' is not a number"),
        ("ann,alien,5,1_0", "time '1_0' is not a number"),
        (",alien,5,7", "user has 0 bytes, not 1 to 256"),
        ("ann,,5,7", "item has 0 bytes, not 1 to 256"),
        ("x" * 257 + ",alien,5,7", "user has 257 bytes, not 1 to 256"),
        ("ann," + "é" * 129 + ",5,7", "item has 258 bytes, not 1 to 256"),
        ('ann,"alien,5,7', "not CSV: unexpected end of data"),
        ('ann,"ali"en,5,7', "not CSV: ',' expected after '\"'"),
    ],
)
def test_bad_ratings(line: str, reason: str) -> None:
    parser = RatingParser("ratings", ".csv")
    parser("ann,alien,5,7")
    with pytest.raises(ValueError) as raised:  # noqa: PT011 (the reason is compared as a whole)
        parser(line)
    assert str(raised.value) == reason


def test_long_ids_of_ratings_are_taken_up_to_the_limit() -> None:
    assert parse_ratings("x" * 256 + "," + "é" * 128 + ",5") == [("x" * 256, 5.0, 0, ("é" * 128,))]
