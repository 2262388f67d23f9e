"""The dashboard in a real browser, with a real API, trainer, store and broker behind it."""

import base64
import hashlib
import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest
from playwright.sync_api import Browser, Locator

from saros.adapters.kafka import Writer
from saros.api.dashboard import dashboard
from saros.api.keys import entry_of, new_key
from tests.api.browser import LAPTOP, PHONE, Visit, chromium, visit
from tests.api.double import ITEMS, LIMITS, Double, served
from tests.api.test_end_to_end import Api, started, stop
from tests.api.visitors import Visitors, visited
from tests.broker import Broker
from tests.servers import free_ports
from tests.store import StoreServer
from tests.trainer.runs import SAROS, Model, running

HOSTILE = "<img src=x onerror=alert(1)>"
GATE = {"SAROS_GATE__BLOCKS_MIN": "1", "SAROS_GATE__BLOCKS_MAX": "40", "SAROS_MODEL__DIM": "16"}
BOT_BLOCKS = 50


class Site(NamedTuple):
    """A page, and people on it."""

    url: str
    api: Api
    trained: Model


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


def model_of(broker: Broker, store: StoreServer, scratch: Path) -> Model:
    model = Model(f"m{uuid4().hex[:12]}", broker.address, store.url, scratch)
    model.settings |= GATE
    return model


@pytest.fixture(scope="module")
def site(
    browser: Browser, broker: Broker, store_server: StoreServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """A service with traffic: people, a bot that passed B, a message that nobody can read, and an odd item."""
    trained = model_of(broker, store_server, tmp_path_factory.mktemp("site"))
    with running([trained.trainer()]), started(trained) as api:
        api.await_ready()
        url = str(api.client.base_url)
        people = Visitors(api.client)
        people.name_items()
        for _ in range(60):
            people.come()
        people.be_a_bot("bot-1", BOT_BLOCKS)
        for k in range(12):
            people.send({"kind": "impression", "user": f"odd{k}", "items": ["film-0001", HOSTILE]},
                        {"kind": "click", "user": f"odd{k}", "item": HOSTILE})  # fmt: skip
        Writer(trained.cluster).send(trained.topics.events, 0, b"\xff not an event")
        with visited(url, seed=1):
            yield Site(url, api, trained)


def number(text: str) -> float:
    """Return the number that a text begins with."""
    found = re.match(r"[≈ +−]*([\d.,]+)", text)
    assert found is not None, text
    return float(found[1].replace(",", ""))


def ids(page: Visit) -> list[str]:
    """Return the items of the playground's list."""
    return page.page.eval_on_selector_all("#play .item", "rows => rows.map(row => row.dataset.item)")  # type: ignore[no-any-return]


def await_live(page: Visit) -> None:
    page.until("document.querySelector('#state').dataset.state === 'ready'")
    page.until("document.querySelectorAll('#play .item').length > 3 && points.length > 2")


# --- without a browser -----------------------------------------------------------------------------------------------


def test_the_page_is_served_whole_and_kept_to_itself() -> None:
    with served(Double()) as api:
        answer = api.client.get("/")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert (policy["default-src"], policy["connect-src"], policy["frame-ancestors"]) == ("'none'", "'self'", "'none'")
    assert "unsafe" not in answer.headers["content-security-policy"]
    for tag, directive in (("script", "script-src"), ("style", "style-src")):
        (inner,) = re.findall(rf"<{tag}>(.*?)</{tag}>", answer.text, flags=re.DOTALL)
        assert policy[directive] == f"'sha256-{base64.b64encode(hashlib.sha256(inner.encode()).digest()).decode()}'"
    addresses = set(re.findall(r"(?:https?:)?//[\w.-]+\.[a-z]{2,}[\w/]*", answer.text))
    assert addresses == {"http://www.w3.org/2000/svg"}, "the name of a language, which nobody fetches"
    assert not re.findall(r"<(?:img|iframe|script[^>]*\ssrc)\b|@import|url\(", answer.text), "nothing that is fetched"
    assert answer.text == dashboard(LIMITS).text


def test_nothing_on_the_page_becomes_markup() -> None:
    text = dashboard(LIMITS).text
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "DOMParser", "eval(", "new Function"):
        assert way not in text, way


# --- pure pieces, where they run -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def bare(browser: Browser) -> Iterator[Visit]:
    """The page with a model behind it that tells nothing."""
    with served(Double()) as api, visit(browser, api.url) as page:
        yield page


def test_a_stream_is_read_however_it_is_cut(bare: Visit) -> None:
    found = bare.page.evaluate(
        r"""() => {
          const text = ": hello\nevent: history\ndata: {}\n\n\nid: 3\ndata: one\r\ndata:  two\r\n\r\n" +
            "event: pulse\rdata\rdata:x\r\rdata: never ended\n";
          const cuts = [text.length, 1, 2, 3, 7].map((size) => {
            const read = sseReader(), found = [];
            for (let at = 0; at < text.length; at += size) found.push(...read(text.slice(at, at + size)));
            return JSON.stringify(found);
          });
          return [new Set(cuts).size, JSON.parse(cuts[0])];
        }"""
    )
    assert found == [
        1,
        [
            {"event": "history", "data": "{}"},
            {"event": "message", "data": "one\n two"},
            {"event": "pulse", "data": "\nx"},
        ],
    ]


def test_axes_have_round_ticks_that_hold_all_values(bare: Visit) -> None:
    assert bare.page.evaluate("axisOf([0, 812]).ticks") == [0, 500, 1000]
    assert bare.page.evaluate("axisOf([]).ticks[0]") == 0
    assert bare.page.evaluate("axisOf([null, undefined, NaN], {least: 10}).high") == 10
    found = bare.page.evaluate("axisOf([0.62, 0.73, 0.65], {free: true, least: 0.04, most: 1})")
    assert found["low"] <= 0.62 < 0.73 <= found["high"] <= 1
    assert bare.page.evaluate("axisOf([0.99, 0.999], {free: true, least: 0.04, most: 1}).high") == 1
    for high in (1e-3, 0.04, 1, 7, 99, 100, 12345, 1e9):
        ticks = bare.page.evaluate(f"axisOf([{high}], {{least: 1e-6}}).ticks")
        assert 2 <= len(ticks) <= 5, (high, ticks)
        assert ticks[-1] >= high * (1 - 1e-9)
    assert bare.page.evaluate("linear(0, 10, 100, 200)(5)") == 150
    assert bare.page.evaluate("linear(3, 3, 0, 10)(3)") == 5
    assert bare.page.evaluate("timeTicks(1000, 1900, 5)") == {"ticks": [1200, 1500, 1800], "seconds": False}
    times = "[{time: 1}, {time: 2}, {time: 5}]"
    assert bare.page.evaluate(f"[0, 1.4, 1.6, 3.6, 99].map((at) => nearest({times}, at))") == [0, 0, 1, 2, 2]
    assert bare.page.evaluate("nearest([], 5)") == -1
    edges = bare.page.evaluate("[1, 63, 64, 65, 72, 128, 256].map(edgeOf)")
    assert edges == sorted(edges)
    assert (edges[2], edges[5], edges[6]) == (64, 72, 80), "eight bins for each doubling"
    assert bare.page.evaluate(
        "[1, 40, 64, 200, 5000].every((count) => Math.abs(countAt(edgeOf(count)) - count) < 1e-6)"
    )


def test_bounds_of_the_lift_are_those_of_newcombe(bare: Visit) -> None:
    # The example of Newcombe (1998), table II, method 10: 56/70 and 48/80.
    found = bare.page.evaluate("liftOf({shown: 70, clicked: 56}, {shown: 80, clicked: 48})")
    assert found["lift"] == pytest.approx(0.2)
    assert (found["low"], found["high"]) == (pytest.approx(0.0524, abs=1e-4), pytest.approx(0.3339, abs=1e-4))
    assert found["times"] == pytest.approx(0.8 / 0.6)
    none = bare.page.evaluate("liftOf({shown: 10, clicked: 0}, {shown: 10, clicked: 0})")
    assert (none["lift"], none["times"]) == (0, None)
    assert none["low"] < 0 < none["high"]
    assert bare.page.evaluate("liftOf(undefined, {shown: 1, clicked: 1})") is None
    assert bare.page.evaluate("liftOf({shown: 0, clicked: 0}, {shown: 1, clicked: 1})") is None


def test_moves_points_and_numbers(bare: Visit) -> None:
    assert bare.page.evaluate("[...movesOf(['a', 'b', 'c'], ['c', 'a', 'x'])]") == [["c", 2], ["a", -1], ["x", None]]
    kept = bare.page.evaluate(
        "[...Array(1000).keys()].reduce((points, time) => withPoint(points, {time}), []).map((one) => one.time)"
    )
    assert (kept[0], kept[-1], len(kept)) == (100, 999, 900)
    assert bare.page.evaluate("withPoint([{time: 5}], {time: 5}).length") == 1
    assert bare.page.evaluate("[countText(null), countText(1234), countText(123456), countText(2.5e6)]") == [
        "–", "1,234", "123 k", "2.5 M",
    ]  # fmt: skip
    assert bare.page.evaluate("[msText(3.14), msText(31.4), msText(1500), secondsText(0), percentText(.1234)]") == [
        "3.1 ms", "31 ms", "1.5 s", "0 ms", "12.3 %",
    ]  # fmt: skip
    assert bare.page.evaluate("[pointsText(0.0321), pointsText(-0.5), pointsText(NaN)]") == ["+3.21", "−50.0", "–"]
    of = "sinceFirst(RATES.map((events_per_s, time) => ({events_per_s, time}))).map((one) => one.time)"
    for rates, times in (("[0, 0, 0, 5, 0]", [2, 3, 4]), ("[3, 4]", [0, 1]), ("[0, 0]", [0, 1]), ("[]", [])):
        assert bare.page.evaluate(of.replace("RATES", rates)) == times, "an empty beginning is left out"


def test_only_an_answer_says_whether_a_key_may_change_the_gate(browser: Browser) -> None:
    with served(Double()) as api, visit(browser, api.url) as page:

        def learnt(key: str, status: int) -> bool | None:
            page.page.unroute_all()
            page.page.route("**/v1/gate", lambda route: route.fulfill(status=status) if status else route.abort())
            page.page.evaluate(f"sessionStorage.setItem('saros.key', '{key}'), gate.learnRights()")
            return page.page.evaluate(f"gate.may.get('{key}') ?? null")  # type: ignore[no-any-return]

        assert [learnt("boss", status) for status in (503, 429, 0, 422, 503)] == [None, None, None, True, True]
        assert [learnt("reader", 403), learnt("stranger", 401)] == [False, False]


def test_the_playground_keeps_to_the_limits_of_the_api(browser: Browser) -> None:
    limits = LIMITS._replace(k_max=5, session_max=7, wait_ms_max=100)
    with served(Double(), limits=limits) as api, visit(browser, api.url) as page:
        page.page.evaluate("play.be('')")
        for _ in range(4):
            page.page.evaluate("play.click(play.ids[1])")
        assert ids(page) == ITEMS[:5]
        assert [item for item, clicked in api.model.asked[-1].session if clicked] == [ITEMS[1]] * 2, "the last ones"
        page.page.evaluate("play.user = 'ann', play.refresh('0:1')")
        assert api.model.asked[-1].wait_ms == 100
        page.check()


def test_a_click_that_fails_is_taken_from_nobody_else(browser: Browser) -> None:
    with served(Double()) as api, visit(browser, api.url) as page:
        found = page.page.evaluate(
            """async () => {
              const real = fetch, sent = [];
              window.fetch = (path, more) => path === "v1/events"
                ? new Promise((done, fail) => sent.push({ done, fail })) : real(path, more);
              const took = () => new Response('{"token": "0:1"}');
              await play.be("ann");
              const hers = play.click(play.ids[0]);
              await play.be("bob");
              const his = play.click(play.ids[1]);
              sent[1].done(took());
              await his;
              sent[0].fail(new TypeError());
              await hers;
              const kept = [...play.clicked], quiet = play.at("error").hidden;
              await play.be("cy");
              const again = play.click(play.ids[2]);
              sent[2].fail(new TypeError());
              await again;
              return [kept, quiet, [...play.clicked], play.at("error").hidden];
            }"""
        )
        assert found == [[ITEMS[1]], True, [], False]


# --- with people -----------------------------------------------------------------------------------------------------


def test_numbers_move_and_nothing_goes_wrong(browser: Browser, site: Site) -> None:
    with visit(browser, site.url) as page:
        await_live(page)
        assert page.text("#model") == f"model {site.trained.name}"
        assert page.text("#state") == "ready"
        assert site.trained.name in page.page.title()
        before = page.page.evaluate("[pulse.time, pulse.events.total, points.length]")
        page.until(f"pulse.time > {before[0] + 2} && pulse.events.total > {before[1]} && points.length > {before[2]}")
        assert number(page.text("#rate")) > 0
        page.until("charts.accuracy.series[0].figure.textContent.endsWith(' %')", "each chart has its number")
        for key in ("model", "random", "accuracy", "baseline", "chance", "events_per_s", "lag_s", "p50", "p99"):
            assert number(page.text(f'[data-series="{key}"]')) >= 0, key
        assert re.fullmatch(r"[+−][\d.]+ pts", page.text("[data-chart=clicks] .extra .value"))
        assert re.fullmatch(r"lift, 95 %: [+−][\d.]+ to [+−][\d.]+", page.text("[data-chart=clicks] .extra .label"))
        for name in ("clicks", "accuracy", "events", "servable"):
            assert page.page.locator(f"[data-chart={name}] path.line").first.get_attribute("d"), name
        assert page.text("#dead") == "bad protobuf\n1"
        assert not page.page.locator("#dead-empty").is_visible()
        assert page.page.locator("#top li").count() == 10
        page.until("document.querySelector('#top').innerText.includes('Film No. ')", "titles are found")
        assert number(page.text("[data-gate=above]")) >= 1, "the bot passed B"
        assert number(page.text("[data-gate=taken_back]")) >= 1
        assert not page.page.locator("#empty").is_visible()
        page.check()


def test_values_of_the_past_are_read_by_keys_and_pointer(browser: Browser, site: Site) -> None:
    with visit(browser, site.url) as page:
        await_live(page)
        page.until("points.length > 6")
        plot = page.page.locator("[data-chart=events] .plot")
        plot.focus()
        for _ in range(4):
            page.page.keyboard.press("ArrowLeft")
        clock = page.text("[data-chart=lag] .when")
        assert re.fullmatch(r"\d\d:\d\d:\d\d", clock), "all charts look at the same time"
        assert (plot.get_attribute("aria-valuetext") or "").startswith(f"{clock}: events/s ")
        page.page.keyboard.press("Escape")
        assert page.text("[data-chart=lag] .when") == "now"
        plot.hover(position={"x": 200, "y": 50})
        assert page.page.locator("line.cursor").count() == 5
        page.page.mouse.move(5, 5)
        assert page.text("[data-chart=events] .when") == "now"
        page.check()


@pytest.mark.parametrize("user", ["u1", ""], ids=["user", "guest"])
def test_a_click_changes_the_list(browser: Browser, site: Site, user: str) -> None:
    with visit(browser, site.url) as page:
        await_live(page)
        if user:
            page.page.locator("[data-play=user]").fill(user)
            page.page.keyboard.press("Enter")
            page.until("play.user === 'u1' && !document.querySelector('[data-play=list]').hasAttribute('aria-busy')")
        for _ in range(2):
            before = ids(page)
            clicked = before[1]
            page.page.locator("#play .item").nth(1).click()
            page.until(f"!play.ids.includes({clicked!r})", "what was clicked is gone from the list")
            assert ids(page) != before
        marks = page.page.eval_on_selector_all("#play .move", "all => all.map(one => one.textContent).filter(Boolean)")
        assert any(re.fullmatch(r"▲ \d+|new", mark) for mark in marks), marks
        assert re.fullmatch(r"\d+ items? (is|are) new, \d+ (has|have) moved\.", page.text("[data-play=told]"))
        assert page.text("[data-play=token]") == ("yes" if user else "–")
        assert page.text("[data-play=source]") == ("the user’s row" if user else "the session")
        assert page.text("[data-play=trail]").startswith("Clicked: ")
        assert number(page.text("[data-play=took]")) > 0
        sent = [url for url in page.asked if url.endswith("/v1/events")]
        assert len(sent) == (2 if user else 0), "a guest's clicks stay on the page"
        focused = page.page.evaluate("[...document.querySelectorAll('#play .item')].indexOf(document.activeElement)")
        assert focused == 1, "the next click needs no search"
        page.check()


def test_what_if_answers_and_handles_move_by_keys_and_by_pointer(browser: Browser, site: Site) -> None:
    with visit(browser, site.url) as page:
        await_live(page)
        low, high = page.page.locator(".handle").nth(0), page.page.locator(".handle").nth(1)

        def at(handle: Locator) -> int:
            return int(handle.get_attribute("aria-valuenow") or "")

        assert (at(low), at(high)) == (1, 40)
        page.until("document.querySelector('[data-gate=drop_users]').textContent !== '–'")
        in_force = number(page.text("[data-gate=drop_users]"))
        low.focus()
        page.page.keyboard.press("ArrowRight")
        page.page.keyboard.press("ArrowUp")
        assert at(low) == 3
        page.page.keyboard.press("Home")
        assert at(low) == 1
        high.focus()
        page.page.keyboard.press("ArrowLeft")
        page.page.keyboard.press("PageDown")
        assert at(high) == 34
        box = high.locator(".grip").bounding_box()
        plot = page.page.locator("[data-gate=plot]").bounding_box()
        assert box is not None
        assert plot is not None
        page.page.mouse.move(box["x"] + 4, box["y"] + 8)
        page.page.mouse.down()
        page.page.mouse.move(plot["x"] + 90, box["y"] + 8, steps=5)
        page.page.mouse.up()
        assert 1 <= at(high) < 20
        page.until(f"parseFloat(document.querySelector('[data-gate=drop_users]').textContent) > {in_force}")
        assert page.text("[data-gate=what]") == f"With b = 1 and B = {at(high)} would be dropped"
        assert re.fullmatch(r"[\d,]+ of [\d,]+ users", page.text("[data-gate=of_users]"))
        assert page.text("[data-gate=drop_clicks]").startswith("≈")
        assert page.page.locator("rect.bar.out").count() > 0
        page.page.locator("[data-gate=reset]").click()
        assert at(high) == 40
        page.check()


def test_bounds_are_put_in_force_by_whoever_may_and_says_yes(browser: Browser, site: Site) -> None:
    with visit(browser, site.url) as page:
        await_live(page)
        apply = page.page.locator("[data-gate=apply]")
        assert not apply.is_visible()
        page.page.locator(".handle").nth(1).focus()
        page.page.keyboard.press("ArrowLeft")
        apply.click()
        page.page.locator("dialog [value=no]").click()
        assert site.api.client.get("/v1/gate").json()["revision"] == 0
        apply.click()
        assert "Put b = 1 and B = 39 in force?" in page.text("dialog")
        page.page.locator("dialog [value=yes]").click()
        page.until("document.querySelector('[data-gate=done]').textContent.startsWith('In force since revision 1')")
        told = site.api.client.get("/v1/gate").json()
        assert (told["revision"], told["settings"]["blocks_max"]) == (1, 39)
        page.until("pulse.gate.blocks_max === 39", "a pulse says so, too")
        site.api.client.patch("/v1/gate", json={"blocks_max": 40}).raise_for_status()
        page.until("pulse.gate.blocks_max === 40")
        page.check()


def test_an_id_that_looks_like_markup_stays_text(browser: Browser, site: Site) -> None:
    with visit(browser, site.url) as page:
        await_live(page)
        page.until(f"document.querySelector('#top').innerText.includes({HOSTILE!r})", "everybody clicks it")
        page.page.locator("[data-play=user]").fill(HOSTILE)
        page.page.keyboard.press("Enter")
        page.until(f"document.querySelector('[data-play=who]').textContent === 'List of user ' + {HOSTILE!r}")
        page.until("!document.querySelector('[data-play=list]').hasAttribute('aria-busy')")
        row = page.page.locator("#play .item", has_text=HOSTILE)
        row.click()
        page.until(f"play.clicked.includes({HOSTILE!r}) && !play.ids.includes({HOSTILE!r})")
        assert page.page.locator("img").count() == 0
        page.check()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [LAPTOP, PHONE], ids=["laptop", "phone"])
def test_it_fits_and_can_be_read(browser: Browser, site: Site, size: tuple[int, int], scheme: str) -> None:
    with visit(browser, site.url, size, color_scheme=scheme, reduced_motion="reduce") as page:
        await_live(page)
        page.until("points.length > 6")
        page.page.locator('[data-user="u1"]').click()
        page.until("play.user === 'u1' && play.ids.length && !play.at('list').hasAttribute('aria-busy')")
        page.page.locator("#play .item").nth(2).click()
        page.until("document.querySelector('[data-play=told]').textContent !== ''")
        page.shoot(f"dashboard-{'laptop' if size == LAPTOP else 'phone'}-{scheme}")
        assert page.fits()
        assert page.page.evaluate("document.getAnimations().length") == 0, "reduced motion moves nothing"
        assert low_contrast(page) == []
        unnamed = """() => [...document.querySelectorAll("button, a, input, [tabindex='0'], [role=slider]")]
          .filter((one) => one.checkVisibility() && !one.getAttribute("aria-label") && !one.innerText)
          .map((one) => one.outerHTML)"""
        assert page.page.evaluate(unnamed) == []
        page.check()


def look_at(page: Visit, name: str) -> None:
    """Keep a picture of a state in which something is missing; it fits and can be read like any other."""
    page.shoot(name)
    assert page.fits()
    assert low_contrast(page) == []


def low_contrast(page: Visit) -> list[str]:
    """Return texts that differ too little from what is behind them for WCAG AA."""
    return page.page.evaluate(  # type: ignore[no-any-return]
        """() => {
          const parts = (color) => color.match(/[\\d.]+/g).map(Number);
          const light = (color) => { const [r, g, b] = parts(color).slice(0, 3).map((part) => {
            part /= 255; return part <= .04045 ? part / 12.92 : ((part + .055) / 1.055) ** 2.4; });
            return .2126 * r + .7152 * g + .0722 * b; };
          const behind = (element) => { for (; element; element = element.parentElement) {
            const color = getComputedStyle(element).backgroundColor, [, , , alpha = 1] = parts(color);
            if (alpha > .99) return color; } return "rgb(255, 255, 255)"; };
          const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT), found = [];
          for (let node = walker.nextNode(); node; node = walker.nextNode()) {
            const element = node.parentElement;
            if (!node.textContent.trim() || !element.checkVisibility() || element.closest(".grip-text")) continue;
            const style = getComputedStyle(element);
            const ink = element instanceof SVGElement ? style.fill : style.color;
            const [a, b] = [light(ink), light(behind(element))].sort((x, y) => y - x);
            const ratio = (a + .05) / (b + .05);
            if (ratio < 4.5) found.push(`${ratio.toFixed(2)} ${ink} on ${behind(element)}: ${node.textContent.trim()}`);
          }
          return found;
        }"""
    )


def test_the_first_key_leads_to_what_there_is_to_do(browser: Browser, site: Site) -> None:
    with visit(browser, site.url) as page:
        await_live(page)
        seen: list[str] = []
        for _ in range(60):
            page.page.keyboard.press("Tab")
            seen.append(page.page.evaluate(
                """() => { const at = document.activeElement, style = getComputedStyle(at);
                  const shown = style.outlineStyle !== "none" || at.classList.contains("handle");
                  return (shown ? "" : "UNSEEN ") + (at.getAttribute("aria-label") || at.innerText || at.tagName); }"""
            ))  # fmt: skip
            if "B, most blocks" in seen[-1]:
                break
        assert seen[0] == "To the playground"
        assert not [one for one in seen if one.startswith("UNSEEN")], seen
        assert [one for one in seen if one.startswith("Click ")], "items can be clicked"
        assert "B, most blocks" in seen[-1]


# --- without people --------------------------------------------------------------------------------------------------


def test_a_key_is_asked_for_nothing_is_there_yet_and_what_was_lost_comes_back(
    browser: Browser, broker: Broker, store_server: StoreServer, tmp_path: Path
) -> None:
    trained, (port,) = model_of(broker, store_server, tmp_path), free_ports(1)
    read, admin = new_key(), new_key()
    entries = f"{entry_of('reader', ['read'], read)} {entry_of('boss', ['admin'], admin)}"
    settings = {"SAROS_API__KEYS": entries, "SAROS_API__PORT": str(port)}
    url = f"http://127.0.0.1:{port}"
    with ExitStack() as stack:
        api = stack.enter_context(started(trained, **settings))
        page = stack.enter_context(visit(browser, url))
        page.until("document.activeElement.id === 'key'", "a key is asked for")
        assert page.text("#state") == "key needed"
        assert not page.page.locator("#known").is_visible(), "nothing is shown that is not known"
        look_at(page, "dashboard-key")
        page.page.keyboard.type("saros_wrong")
        page.page.keyboard.press("Enter")
        page.until("document.querySelector('#key-why').textContent === 'That key is not known here.'")
        page.page.locator("#key").fill(read)
        page.page.keyboard.press("Enter")
        page.until("document.querySelector('#state-word').textContent === 'starting'", "the key is good")
        assert not page.page.locator("#ask-key").is_visible()
        assert page.page.locator("#known").is_visible()
        page.until("document.querySelector('#banner').innerText.startsWith('Not ready yet: ')")
        assert page.page.evaluate("sessionStorage.getItem('saros.key')") == read
        look_at(page, "dashboard-starting")
        subprocess.run([SAROS, "init"], env=trained.environ(), check=True, capture_output=True)
        page.until("document.querySelector('#state-word').textContent === 'ready'")
        page.until("!document.querySelector('#empty').hidden")
        assert f"curl {url}/v1/events" in page.text("#curl")
        assert page.text("#dead-empty") == "None, good."
        assert "no data yet" in page.page.locator("[data-chart=clicks] .plot").inner_html()
        look_at(page, "dashboard-empty")
        page.page.locator(".handle").nth(1).focus()
        page.page.keyboard.press("ArrowLeft")
        page.until("gate.may.get(keyInUse()) === false", "this key may look, and no more")
        assert not page.page.locator("[data-gate=apply]").is_visible()
        page.page.evaluate(f"sessionStorage.setItem('saros.key', {admin!r})")
        page.page.route("**/v1/gate", lambda route: route.fulfill(status=503), times=1)
        page.page.keyboard.press("ArrowLeft")
        page.until("!document.querySelector('[data-gate=apply]').hidden")

        stop(api)
        page.until("document.querySelector('#state-word').textContent === 'connection lost'")
        assert re.match(r"The API does not answer\. Shown is what was known at \d\d:\d\d:\d\d\. ", page.text("#banner"))
        look_at(page, "dashboard-lost")
        page.page.locator("#retry").click()
        page.until("document.querySelector('#state-word').textContent === 'connection lost'", "in vain")
        stack.enter_context(started(trained, **settings))
        page.until("document.querySelector('#state-word').textContent === 'ready'", "it comes back by itself")
        assert not page.page.locator("#banner").is_visible()
        assert [one for one in page.asked if not one.startswith((url, "data:"))] == []
