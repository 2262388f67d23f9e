"""Settings: what is read, what is refused, and in which words."""

import pickle
from collections.abc import Mapping

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from saros.adapters.kafka import Cluster
from saros.adapters.redis import Address
from saros.core.gate import MODES, GateRules
from saros.core.sessions import RULE_ALGORITHM, SessionRules
from saros.core.step import live_step, paper_step
from saros.environment import describe, read
from saros.errors import InputError, SarosError, SettingsError
from saros.settings import GateSettings, Settings, load

DEFAULTS = {
    "SAROS_MODEL__NAME": "saros",
    "SAROS_MODEL__DIM": 64,
    "SAROS_MODEL__SEED": 0,
    "SAROS_MODEL__ITEMS_MAX": 1_000_000,
    "SAROS_MODEL__USERS_MAX": 1_000_000,
    "SAROS_MODEL__SCENARIOS": "model,random",
    "SAROS_SESSION__RULE": "click",
    "SAROS_SESSION__GAP_S": 1800,
    "SAROS_SESSION__SPLIT_ON_ID": False,
    "SAROS_SESSION__NEGATIVES_MAX": 64,
    "SAROS_SESSION__CARRIED_MAX": 16,
    "SAROS_SESSION__CLICKED_MAX": 64,
    "SAROS_SESSION__AHEAD_MAX_S": 300,
    "SAROS_SESSION__USER_TTL_S": 7_776_000,
    "SAROS_GATE__BLOCKS_MIN": 1,
    "SAROS_GATE__BLOCKS_MAX": "p97",
    "SAROS_GATE__BLOCKS_MAX_FLOOR": 50,
    "SAROS_GATE__BLOCKS_MAX_CEILING": 100,
    "SAROS_GATE__WINDOW_DAYS": 7,
    "SAROS_GATE__MODE": "immediate",
    "SAROS_GATE__OWN_ROW": "freeze",
    "SAROS_GATE__REPEAT_CLICKS": "ignore",
    "SAROS_GATE__WAIT_S": 7200,
    "SAROS_GATE__LEDGER_MAX_BYTES": 524_288,
    "SAROS_STEP__KIND": "live",
    "SAROS_STEP__LR_USER": 0.45,
    "SAROS_STEP__LR_ITEM": 0.5,
    "SAROS_STEP__DECAY_USER_MOVES": 30.0,
    "SAROS_STEP__DECAY_ITEM_UPDATES": 100.0,
    "SAROS_STEP__PAIR_EXPONENT": 0.6,
    "SAROS_STEP__PRIOR_STRENGTH": 4.0,
    "SAROS_STEP__OPPONENT_WEIGHT": 1.5,
    "SAROS_STEP__LR": 0.2,
    "SAROS_KAFKA__BOOTSTRAP": "",
    "SAROS_KAFKA__OPTIONS": "**********",
    "SAROS_KAFKA__PARTITIONS": 4,
    "SAROS_KAFKA__REPLICATION": 0,
    "SAROS_KAFKA__CREATE_TOPICS": True,
    "SAROS_KAFKA__STOP_AT_GAP": False,
    "SAROS_REDIS__URL": "",
    "SAROS_REDIS__USERNAME": "",
    "SAROS_REDIS__PASSWORD": "",
    "SAROS_REDIS__CA_FILE": "",
    "SAROS_REDIS__CERT_FILE": "",
    "SAROS_REDIS__KEY_FILE": "",
    "SAROS_REDIS__TIMEOUT_S": 5.0,
    "SAROS_REDIS__RETRIES": 3,
    "SAROS_TRAINER__START": "earliest",
    "SAROS_TRAINER__INSTANCE": "",
    "SAROS_TRAINER__POLL_MESSAGES": 16_000,
    "SAROS_TRAINER__MEMORY_MB": 2048,
    "SAROS_TRAINER__RECORD_KB": 2048,
    "SAROS_TRAINER__SHARDS_EVERY_MS": 1000,
    "SAROS_TRAINER__METRICS_HOST": "0.0.0.0",
    "SAROS_TRAINER__METRICS_PORT": 0,
    "SAROS_API__HOST": "127.0.0.1",
    "SAROS_API__PORT": 8000,
    "SAROS_API__ALLOW_OPEN": False,
    "SAROS_API__KEYS": "",
    "SAROS_API__KEYS_FILE": "",
    "SAROS_API__METRICS_OPEN": False,
    "SAROS_API__ACCESS_LOG_SHARE": 0.0,
    "SAROS_API__K_MAX": 1000,
    "SAROS_API__EXCLUDE_MAX": 1000,
    "SAROS_API__USERS_MAX": 100,
    "SAROS_API__SESSION_MAX": 200,
    "SAROS_API__CANDIDATES_MAX": 1000,
    "SAROS_API__EVENTS_MAX": 1000,
    "SAROS_API__BODY_MAX_BYTES": 1_048_576,
    "SAROS_API__HEADER_MAX_BYTES": 32_768,
    "SAROS_API__HEADER_TIMEOUT_S": 10.0,
    "SAROS_API__BODY_TIMEOUT_S": 10.0,
    "SAROS_API__CONCURRENCY_MAX": 512,
    "SAROS_API__STREAMS_MAX": 32,
    "SAROS_API__WAITS_MAX": 256,
    "SAROS_API__WAIT_MS_MAX": 10_000,
    "SAROS_API__ACK_TIMEOUT_S": 5.0,
    "SAROS_API__QUEUE_MAX_MESSAGES": 10_000,
    "SAROS_API__QUEUE_MAX_MB": 64,
    "SAROS_API__LAG_MAX_S": 30.0,
    "SAROS_API__CACHE_USERS": 100_000,
    "SAROS_CLIENT__KEY": "",
    "SAROS_LOG__FORMAT": "text",
}

# variable: (least allowed, next below, most allowed, next above)
LIMITS = {
    "SAROS_MODEL__DIM": ("2", "1", "512", "513"),
    "SAROS_MODEL__SEED": ("0", "-1", str(2**63 - 1), str(2**63)),
    "SAROS_MODEL__ITEMS_MAX": ("1", "0", "50000000", "50000001"),
    "SAROS_MODEL__USERS_MAX": ("1", "0", "50000000", "50000001"),
    "SAROS_SESSION__GAP_S": ("0", "-1", "604800", "604801"),
    "SAROS_SESSION__NEGATIVES_MAX": ("1", "0", "1024", "1025"),
    "SAROS_SESSION__CARRIED_MAX": ("1", "0", "256", "257"),
    "SAROS_SESSION__CLICKED_MAX": ("1", "0", "1024", "1025"),
    "SAROS_SESSION__AHEAD_MAX_S": ("0", "-1", "86400", "86401"),
    "SAROS_SESSION__USER_TTL_S": ("777600", "777599", "315360000", "315360001"),
    "SAROS_GATE__BLOCKS_MIN": ("1", "0", "1000000000", "1000000001"),
    "SAROS_GATE__BLOCKS_MAX": ("1", "0", "1000000000", "1000000001"),
    "SAROS_GATE__BLOCKS_MAX_FLOOR": ("1", "0", "1000000000", "1000000001"),
    "SAROS_GATE__BLOCKS_MAX_CEILING": ("1", "0", "1000000000", "1000000001"),
    "SAROS_GATE__WAIT_S": ("0", "-1", "691200", "691201"),
    "SAROS_GATE__WINDOW_DAYS": ("1", "0", "8", "9"),
    "SAROS_GATE__LEDGER_MAX_BYTES": ("4096", "4095", "16777216", "16777217"),
    "SAROS_STEP__LR_USER": ("1e-9", "0", "10", "10.1"),
    "SAROS_STEP__LR_ITEM": ("1e-9", "0", "10", "10.1"),
    "SAROS_STEP__DECAY_USER_MOVES": ("1e-9", "0", "1e9", "1.1e9"),
    "SAROS_STEP__DECAY_ITEM_UPDATES": ("1e-9", "0", "1e9", "1.1e9"),
    "SAROS_STEP__PAIR_EXPONENT": ("1e-9", "0", "2", "2.1"),
    "SAROS_STEP__PRIOR_STRENGTH": ("0.001", "0.0009", "1e6", "1.1e6"),
    "SAROS_STEP__OPPONENT_WEIGHT": ("0", "-0.1", "100", "101"),
    "SAROS_STEP__LR": ("1e-9", "0", "10", "10.1"),
    "SAROS_KAFKA__PARTITIONS": ("1", "0", "1024", "1025"),
    "SAROS_KAFKA__REPLICATION": ("0", "-1", "10", "11"),
    "SAROS_REDIS__TIMEOUT_S": ("0.1", "0.09", "60", "61"),
    "SAROS_REDIS__RETRIES": ("0", "-1", "20", "21"),
    "SAROS_TRAINER__POLL_MESSAGES": ("1", "0", "100000", "100001"),
    "SAROS_TRAINER__MEMORY_MB": ("64", "63", "1000000", "1000001"),
    "SAROS_TRAINER__RECORD_KB": ("16", "15", "16384", "16385"),
    "SAROS_TRAINER__SHARDS_EVERY_MS": ("20", "19", "60000", "60001"),
    "SAROS_TRAINER__METRICS_PORT": ("0", "-1", "65535", "65536"),
    "SAROS_API__PORT": ("0", "-1", "65535", "65536"),
    "SAROS_API__K_MAX": ("1", "0", "10000", "10001"),
    "SAROS_API__EXCLUDE_MAX": ("1", "0", "100000", "100001"),
    "SAROS_API__USERS_MAX": ("1", "0", "10000", "10001"),
    "SAROS_API__SESSION_MAX": ("1", "0", "10000", "10001"),
    "SAROS_API__CANDIDATES_MAX": ("1", "0", "100000", "100001"),
    "SAROS_API__EVENTS_MAX": ("1", "0", "100000", "100001"),
    "SAROS_API__BODY_MAX_BYTES": ("1024", "1023", str(64 * 2**20), str(64 * 2**20 + 1)),
    "SAROS_API__HEADER_MAX_BYTES": ("1024", "1023", str(2**20), str(2**20 + 1)),
    "SAROS_API__HEADER_TIMEOUT_S": ("0.1", "0.09", "600", "601"),
    "SAROS_API__BODY_TIMEOUT_S": ("0.1", "0.09", "600", "601"),
    "SAROS_API__CONCURRENCY_MAX": ("1", "0", "100000", "100001"),
    "SAROS_API__WAITS_MAX": ("1", "0", "10000", "10001"),
    "SAROS_API__STREAMS_MAX": ("1", "0", "10000", "10001"),
    "SAROS_API__WAIT_MS_MAX": ("0", "-1", "60000", "60001"),
    "SAROS_API__ACK_TIMEOUT_S": ("0.1", "0.09", "60", "61"),
    "SAROS_API__QUEUE_MAX_MESSAGES": ("1", "0", "100000", "100001"),
    "SAROS_API__QUEUE_MAX_MB": ("2", "1", "1000", "1001"),
    "SAROS_API__ACCESS_LOG_SHARE": ("0", "-0.1", "1", "1.1"),
    "SAROS_API__LAG_MAX_S": ("0.1", "0.09", "86400", "86401"),
    "SAROS_API__CACHE_USERS": ("0", "-1", "50000000", "50000001"),
}


def value_of(variable: str, environ: Mapping[str, str]) -> object:
    return {line.variable: line.value for line in describe(load(environ))}[variable]


def complaints(environ: Mapping[str, str]) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        load(environ)
    lines = str(caught.value).split("\n")
    assert len(lines) == len(caught.value.problems)
    return lines


def test_defaults() -> None:
    lines = describe(load({}))
    assert {line.variable: line.value for line in lines} == DEFAULTS
    assert [line.variable for line in lines] == list(DEFAULTS), "in the order of the models"
    assert {line.source for line in lines} == {"default"}


def test_every_setting_is_described_and_says_what_it_takes() -> None:
    for line in describe(load({})):
        assert len(line.description) > 10, line.variable
        assert line.allowed.split()[0] in {"a", "0", "1"} or line.allowed.startswith("'"), line.variable


def test_every_number_is_limited() -> None:
    numbers = {
        name for name, value in DEFAULTS.items() if isinstance(value, int | float) and not isinstance(value, bool)
    }
    assert set(LIMITS) == numbers | {"SAROS_GATE__BLOCKS_MAX"}


@pytest.mark.parametrize("variable", LIMITS)
def test_limits(variable: str) -> None:
    least, below, most, above = LIMITS[variable]
    number = float if isinstance(DEFAULTS[variable], float) else int
    # A band must not be empty, nor an estimate's: a bound as far out needs the other one there too.
    room = {
        "SAROS_GATE__BLOCKS_MIN": {"SAROS_GATE__BLOCKS_MAX": most},
        "SAROS_GATE__BLOCKS_MAX_FLOOR": {"SAROS_GATE__BLOCKS_MAX_CEILING": most},
        "SAROS_GATE__BLOCKS_MAX_CEILING": {"SAROS_GATE__BLOCKS_MAX_FLOOR": least},
    }.get(variable, {})
    assert value_of(variable, {variable: least} | room) == number(least)
    assert value_of(variable, {variable: most} | room) == number(most)
    assert complaints({variable: below})[0].startswith(f"{variable}={below} is too small: give ")
    assert complaints({variable: above})[0].startswith(f"{variable}={above} is too large: give ")


@pytest.mark.parametrize(
    ("variable", "text", "line"),
    [
        (
            "SAROS_GATE__BLOCKS_MAX",
            "0",
            "is too small: give a whole number from 1 to 1000000000, 'mean' or a percentile",
        ),
        ("SAROS_GATE__BLOCKS_MIN", "mean", "is not understood: give a whole number from 1 to 1000000000 or 'min'"),
        ("SAROS_MODEL__DIM", "many", "is not a whole number: give a whole number from 2 up to 512"),
        ("SAROS_MODEL__DIM", "64.5", "is not a whole number: give a whole number from 2 up to 512"),
        ("SAROS_MODEL__DIM", "", "is not a whole number: give a whole number from 2 up to 512"),
        ("SAROS_MODEL__NAME", "Saros", "has the wrong form: give 1 to 32 of the characters a-z, 0-9, _ and -"),
        ("SAROS_MODEL__NAME", "s" * 33, "has the wrong form: give 1 to 32 of"),
        ("SAROS_MODEL__NAME", "-s", "has the wrong form: give 1 to 32 of"),
        (
            "SAROS_MODEL__SCENARIOS",
            "home,home",
            "has a name twice: give a list of up to 32 names of 1 to 64 bytes, each once",
        ),
        ("SAROS_MODEL__SCENARIOS", "home, search", "has the wrong form: give a list of up to 32 names"),
        ("SAROS_MODEL__SCENARIOS", "home,,search", "has the wrong form: give a list of up to 32 names"),
        ("SAROS_MODEL__SCENARIOS", ",", "has a name twice: give a list of up to 32 names"),
        ("SAROS_SESSION__RULE", "authors", "needs the whole data set and is for offline replay only: give 'click' or"),
        ("SAROS_SESSION__RULE", "clicks", "is not one of the choices: give 'click' or 'algorithm'"),
        ("SAROS_SESSION__SPLIT_ON_ID", "maybe", "is neither true nor false: give 'true' or 'false'"),
        ("SAROS_SESSION__USER_TTL_S", "1", "is too small: give 0 or a whole number from 777600 (9 days) to 315360000"),
        ("SAROS_GATE__MODE", "off", "is not one of the choices: give 'immediate', 'session' or 'shadow'"),
        ("SAROS_GATE__OWN_ROW", "melt", "is not one of the choices: give 'freeze' or 'learn'"),
        ("SAROS_GATE__REPEAT_CLICKS", "", "is not one of the choices: give 'learn' or 'ignore'"),
        ("SAROS_STEP__KIND", "dead", "is not one of the choices: give 'live' or 'paper'"),
        ("SAROS_STEP__LR", "fast", "is not a number: give a number above 0 up to 10"),
        ("SAROS_STEP__LR", "nan", "is not a finite number: give a number above 0 up to 10"),
        ("SAROS_STEP__PRIOR_STRENGTH", "inf", "is not a finite number: give a number from 0.001 up to 1000000"),
    ],
)
def test_a_wrong_value_is_refused_in_plain_words(variable: str, text: str, line: str) -> None:
    (found,) = complaints({variable: text})
    assert found.startswith(f"{variable}={text} {line}")


@pytest.mark.parametrize("text", ["1", "77", "1000000000", "mean", "p1", "p95", "p99.5", "p0.1", "p99.999"])
def test_blocks_max_takes_numbers_mean_and_percentiles(text: str) -> None:
    assert value_of("SAROS_GATE__BLOCKS_MAX", {"SAROS_GATE__BLOCKS_MAX": text}) == (
        int(text) if text.isdigit() else text
    )


@pytest.mark.parametrize(
    "text", ["min", "p", "p0", "p0.0", "p00", "p100", "p-5", "p95%", "P95", "95p", "p9.", "1.5", "p1e1"]
)
def test_blocks_max_refuses_other_words(text: str) -> None:
    (line,) = complaints({"SAROS_GATE__BLOCKS_MAX": text})
    assert line.startswith(f"SAROS_GATE__BLOCKS_MAX={text} is not understood: give ")


@pytest.mark.parametrize(
    ("text", "names"),
    [("", ()), ("home", ("home",)), ("home,my list,é", ("home", "my list", "é")), ("é" * 32, ("é" * 32,)),
     (",".join("abcdefghijklmnopqrstuvwxyzABCDEF"), tuple("abcdefghijklmnopqrstuvwxyzABCDEF"))],
)  # fmt: skip
def test_scenarios_have_an_order(text: str, names: tuple[str, ...]) -> None:
    assert load({"SAROS_MODEL__SCENARIOS": text}).model.scenario_names() == names


def test_scenarios_have_limits() -> None:
    many, long = ",".join("abcdefghijklmnopqrstuvwxyzABCDEFG"), "a" * 65
    for text, words in ((many, "has too many names"), (long, "has the wrong form"), ("é" * 33, "has the wrong form")):
        (line,) = complaints({"SAROS_MODEL__SCENARIOS": text})
        assert line.startswith(f"SAROS_MODEL__SCENARIOS={text[:60]}")
        assert f" {words}: give a list of up to 32 names of 1 to 64 bytes, each once" in line


def test_blocks_min_takes_min() -> None:
    assert value_of("SAROS_GATE__BLOCKS_MIN", {"SAROS_GATE__BLOCKS_MIN": "min"}) == "min"


def test_the_band_must_not_be_empty() -> None:
    environ = {"SAROS_GATE__BLOCKS_MIN": "60", "SAROS_GATE__BLOCKS_MAX": "50"}
    assert complaints(environ) == [
        "SAROS_GATE__BLOCKS_MIN=60 is above SAROS_GATE__BLOCKS_MAX=50: lower it to 50, or raise SAROS_GATE__BLOCKS_MAX"
    ]
    assert load(environ | {"SAROS_GATE__BLOCKS_MAX": "60"}).gate.blocks_max == 60
    assert complaints({"SAROS_GATE__BLOCKS_MAX_FLOOR": "101"}) == [
        "SAROS_GATE__BLOCKS_MAX_FLOOR=101 is above SAROS_GATE__BLOCKS_MAX_CEILING=100: "
        "lower it to 100, or raise SAROS_GATE__BLOCKS_MAX_CEILING"
    ]
    assert complaints({"SAROS_GATE__BLOCKS_MAX_CEILING": "49"}) == [
        "SAROS_GATE__BLOCKS_MAX_CEILING=49 is below SAROS_GATE__BLOCKS_MAX_FLOOR=50: "
        "raise it to 50, or lower SAROS_GATE__BLOCKS_MAX_FLOOR"
    ]


def test_zero_means_never() -> None:
    settings = load({"SAROS_SESSION__GAP_S": "0", "SAROS_SESSION__USER_TTL_S": "0"})
    assert (settings.session.gap_s, settings.session.user_ttl_s) == (0, 0)


@pytest.mark.parametrize(("text", "value"), [("true", True), ("1", True), ("on", True), ("no", False), ("0", False)])
def test_words_for_yes_and_no(text: str, value: bool) -> None:
    assert load({"SAROS_SESSION__SPLIT_ON_ID": text}).session.split_on_id is value


def test_a_variable_that_names_no_setting_is_an_error() -> None:
    assert complaints(
        {"SAROS_GATE_BLOCKS_MAX": "5", "SAROS_MODLE__DIM": "5", "SAROS_XYZ": "5", "saros_step__lr": "1"}
    ) == [
        "SAROS_GATE_BLOCKS_MAX names no setting: did you mean SAROS_GATE__BLOCKS_MAX?",
        "SAROS_MODLE__DIM names no setting: did you mean SAROS_MODEL__DIM?",
        "SAROS_XYZ names no setting: unset it; `saros config` then lists all settings",
        "saros_step__lr names no setting: did you mean SAROS_STEP__LR?",
    ]


def test_a_whole_concern_cannot_be_given_as_json() -> None:
    (line,) = complaints({"SAROS_GATE": '{"blocks_max": 5}'})
    assert line.startswith("SAROS_GATE names no setting: ")


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("SAROS_TEST_BROKER", "x"),
        ("PATH", "x"),
        ("SAROS_SERVICE_HOST", "10.0.0.7"),
        ("SAROS_API_SERVICE_PORT_HTTP", "80"),
        ("SAROS_API_PORT", "tcp://10.0.0.7:80"),
        ("SAROS_API_PORT_80_TCP_ADDR", "10.0.0.7"),
    ],
)
def test_variables_of_tests_and_of_kubernetes_are_left_alone(variable: str, text: str) -> None:
    assert load({variable: text}) == load({})


@pytest.mark.parametrize(("variable", "text"), [("SAROS_API_PORT", "8000"), ("SAROS_GATE__PORT", "tcp://10.0.0.7:80")])
def test_what_only_looks_like_kubernetes_is_an_error(variable: str, text: str) -> None:
    (line,) = complaints({variable: text})
    assert line.startswith(f"{variable} names no setting")


def test_all_problems_are_reported_at_once_and_on_one_line_each() -> None:
    lines = complaints({"SAROS_MODEL__NAME": "two\nlines", "SAROS_STEP__LR": "9" * 100, "SAROS_MODEL_DIM": "5"})
    assert [line.split(" ", 1)[0] for line in lines] == [
        "SAROS_MODEL_DIM",
        r"SAROS_MODEL__NAME='two\nlines'",
        f"SAROS_STEP__LR={'9' * 60}…",
    ]


@given(st.sampled_from(sorted(DEFAULTS)), st.text(st.characters(exclude_characters="\0"), max_size=40))
@example("SAROS_GATE__BLOCKS_MAX_CEILING", "1")
@example("SAROS_GATE__BLOCKS_MAX_FLOOR", "101")
@example("SAROS_GATE__BLOCKS_MIN", "51")
def test_any_text_gives_a_value_or_one_plain_line(variable: str, text: str) -> None:
    try:
        load({variable: text})
    except SettingsError as error:
        (problem,) = error.problems
        assert problem.message.startswith(f"{variable}=")
        assert problem.hint.startswith(("give ", "lower it to ", "raise it to "))
        assert str(problem).isprintable()


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAROS_MODEL__DIM", "32")
    settings = load()
    assert settings.model.dim == 32
    assert {line.variable for line in describe(settings) if line.source == "environment"} == {"SAROS_MODEL__DIM"}
    assert Settings().model.dim == 64, "the constructor itself reads no environment"


def test_a_value_equal_to_the_default_still_comes_from_the_environment() -> None:
    lines = describe(load({"SAROS_MODEL__DIM": "64"}))
    assert [line.variable for line in lines if line.source == "environment"] == ["SAROS_MODEL__DIM"]


def test_settings_are_frozen_and_closed() -> None:
    settings = load({})
    with pytest.raises(ValidationError, match="frozen"):
        settings.gate.window_days = 3  # type: ignore[misc]
    with pytest.raises(ValidationError, match="frozen"):
        settings.gate = GateSettings()  # type: ignore[misc]
    with pytest.raises(ValidationError, match="Extra inputs"):
        GateSettings.model_validate({"windows": 3})


class _Store(BaseModel):
    password: SecretStr = Field(SecretStr(""), min_length=8, description="Password of the store")


class _Probe(BaseSettings):
    model_config = SettingsConfigDict(env_prefix="PROBE_", env_nested_delimiter="__")
    store: _Store = _Store()


def test_a_secret_is_never_shown() -> None:
    (line,) = describe(read(_Probe, {"PROBE_STORE__PASSWORD": "correct horse"}))
    assert set(str(line.value)) == {"*"}
    with pytest.raises(SettingsError) as caught:
        read(_Probe, {"PROBE_STORE__PASSWORD": "horse", "PROBE_STORE__PASWORD": "battery"})
    assert "PROBE_STORE__PASSWORD=<hidden> " in str(caught.value)
    assert "horse" not in str(caught.value)
    assert "battery" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None, "pydantic's own error holds the value"


def test_errors_are_one_tree_and_survive_pickling() -> None:
    with pytest.raises(SarosError) as caught:
        load({"SAROS_MODEL__DIM": "1", "SAROS_STEP__LR": "0"})
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is SettingsError
    assert isinstance(again, InputError)
    assert str(again) == str(caught.value)
    assert (again.message, again.hint) == ("SAROS_MODEL__DIM=1 is too small", "give a whole number from 2 up to 512")
    assert str(pickle.loads(pickle.dumps(InputError("it is wet", "dry it")))) == "it is wet: dry it"


def test_defaults_are_those_of_the_core() -> None:
    settings = load({})
    assert settings.gate.rules() == GateRules()
    assert settings.session.rules() == SessionRules(ttl_ms=90 * 86_400_000)
    assert settings.step.rules() == live_step()


def test_settings_reach_the_core() -> None:
    settings = load(
        {
            "SAROS_SESSION__RULE": "algorithm",
            "SAROS_SESSION__GAP_S": "60",
            "SAROS_SESSION__AHEAD_MAX_S": "7",
            "SAROS_SESSION__SPLIT_ON_ID": "true",
            "SAROS_GATE__MODE": "session",
            "SAROS_GATE__OWN_ROW": "learn",
            "SAROS_GATE__REPEAT_CLICKS": "learn",
            "SAROS_GATE__WAIT_S": "60",
            "SAROS_GATE__BLOCKS_MAX_CEILING": "70",
            "SAROS_STEP__KIND": "paper",
            "SAROS_STEP__LR": "0.125",
        }
    )
    rules = SessionRules(RULE_ALGORITHM, gap_ms=60_000, ahead_ms=7_000, ttl_ms=90 * 86_400_000, split_on_id=True)
    assert settings.session.rules() == rules
    assert settings.gate.rules() == GateRules(
        blocks_max_ceiling=70, mode=MODES["session"], own_row=True, ignore_repeats=False, wait_ms=60_000
    )
    assert settings.step.rules() == paper_step(0.125)


@pytest.mark.parametrize(
    ("low", "high", "rules"),
    [
        ("2", "9", GateRules(blocks_min=2, blocks_max=9, percentile=0.0)),
        ("min", "mean", GateRules(blocks_min=0, blocks_max=0, percentile=0.0)),
        ("1", "p99.5", GateRules(percentile=99.5)),
    ],
)
def test_bounds_are_numbers_or_estimates(low: str, high: str, rules: GateRules) -> None:
    settings = load({"SAROS_GATE__BLOCKS_MIN": low, "SAROS_GATE__BLOCKS_MAX": high})
    assert settings.gate.rules() == rules


@pytest.mark.parametrize(
    ("environ", "message"),
    [
        (
            {"SAROS_GATE__BLOCKS_MIN": "51"},
            "SAROS_GATE__BLOCKS_MIN=51 is above SAROS_GATE__BLOCKS_MAX_FLOOR=50: "
            "lower it to 50, or raise SAROS_GATE__BLOCKS_MAX_FLOOR",
        ),
        (
            {"SAROS_GATE__MODE": "session", "SAROS_SESSION__GAP_S": "0"},
            "SAROS_SESSION__GAP_S=0 never ends a session, which SAROS_GATE__MODE=session waits for: "
            "give a number of seconds above 0, or set SAROS_GATE__MODE=immediate",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_refused(environ: dict[str, str], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(environ)
    assert str(caught.value) == message


def test_options_of_kafka_are_passed_on_and_never_shown() -> None:
    secret = '{"sasl.password": "hunter2", "linger.ms": 7}'
    settings = load({"SAROS_KAFKA__OPTIONS": secret, "SAROS_KAFKA__BOOTSTRAP": "one:9092"})
    assert settings.kafka.cluster() == Cluster("one:9092", {"sasl.password": "hunter2", "linger.ms": 7})
    assert "hunter2" not in repr(settings) + str(describe(settings))
    for wrong in ("hunter2", '["hunter2"]', '{"sasl.password": ["hunter2"]}'):
        [line] = complaints({"SAROS_KAFKA__OPTIONS": wrong})
        assert line.startswith("SAROS_KAFKA__OPTIONS=<hidden> is not understood: give a JSON object")
        assert "hunter2" not in line


def test_the_address_of_the_store_is_passed_on_and_its_password_never_shown() -> None:
    assert load({}).redis.address() == Address("")
    settings = load(
        {
            "SAROS_REDIS__URL": "rediss://ann:hunter2@one:6379/0?password=hunter2",
            "SAROS_REDIS__USERNAME": "bob",
            "SAROS_REDIS__PASSWORD": "hunter3",
            "SAROS_REDIS__CA_FILE": "ca",
            "SAROS_REDIS__CERT_FILE": "cert",
            "SAROS_REDIS__KEY_FILE": "key",
            "SAROS_REDIS__TIMEOUT_S": "2",
            "SAROS_REDIS__RETRIES": "1",
        }
    )
    url = "rediss://ann:hunter2@one:6379/0?password=hunter2"
    address = settings.redis.address()
    assert address == Address(url, "bob", "hunter3", "ca", "cert", "key", 2.0, 1)
    assert "hunter" not in repr(settings) + str(describe(settings)) + repr(address)
    assert value_of("SAROS_REDIS__URL", {"SAROS_REDIS__URL": url}) == "rediss://***@one:6379/0"
    assert value_of("SAROS_REDIS__URL", {"SAROS_REDIS__URL": "redis://one:6379"}) == "redis://one:6379"
