"""A browser for tests of pages: a Chromium that is installed, driven by playwright, which brings none of its own."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Request, Response, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
# Nothing of its own accord: no updates, no sync, nobody but whom the page asks.
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
SCREENSHOTS = Path(__file__).parents[2] / "build" / "screenshots"
LAPTOP, PHONE = (1280, 900), (390, 844)
PATIENCE_MS = 20_000


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser that runs; where none is installed, the test is skipped."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is on the PATH")
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        try:
            yield running
        finally:
            running.close()


class Visit:
    """A page that is open, and all that went wrong on it."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url
        self.trouble: list[str] = []
        self.asked: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda said: self._note(said.text, said.type in ("error", "warning")))
        page.on("pageerror", lambda error: self._note(str(error)))
        page.on("requestfailed", self._failed)
        page.on("response", self._answered)
        page.on("request", lambda request: self.asked.append(request.url))
        page.goto(url)

    def _note(self, what: str, bad: bool = True) -> None:
        if bad:
            self.trouble.append(what)

    def _failed(self, request: Request) -> None:
        # A what-if that a newer one overtook is given up by the page itself.
        self._note(f"{request.url}: {request.failure}", request.failure != "net::ERR_ABORTED")

    def _answered(self, response: Response) -> None:
        self._note(f"{response.url}: {response.status}", response.status >= 400)

    def check(self) -> None:
        """Nothing went wrong, and nobody else was asked."""
        assert self.trouble == []
        assert {urlsplit(url).netloc for url in self.asked if not url.startswith("data:")} == {
            urlsplit(self.url).netloc
        }

    def text(self, selector: str) -> str:
        return self.page.locator(selector).first.inner_text()

    def until(self, expression: str, what: str = "") -> None:
        """Wait until something is so on the page."""
        for _ in range(PATIENCE_MS // 50):
            if self.page.evaluate(expression):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"{what or expression}\n{self.text('body')}\n{self.trouble}")

    def shoot(self, name: str, *, whole: bool = True) -> Path:
        """Keep a picture of the page."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        path = SCREENSHOTS / f"{name}.png"
        self.page.evaluate("scrollTo(0, 0)")  # the head of the page stays where one is
        self.page.screenshot(path=path, full_page=whole)
        return path

    def fits(self) -> bool:
        """Is nothing wider than the window?"""
        found: bool = self.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        return found


@contextmanager
def visit(browser: Browser, url: str, size: tuple[int, int] = LAPTOP, **more: Any) -> Iterator[Visit]:
    """Open a page in a window of its own, which has no cookies and no storage."""
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, **more)
    try:
        yield Visit(context.new_page(), url)
    finally:
        context.close()
