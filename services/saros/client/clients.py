"""The clients: one that waits, one to be awaited. Both drive the same calls (`calls` and `admin`)."""

import asyncio
import functools
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from typing import Any, Concatenate, NoReturn, ParamSpec, Self, TypeVar

import httpx

import saros
from saros.client import admin, calls
from saros.client.answers import Receipt
from saros.client.batches import AsyncBatcher, Batcher, Report, Room
from saros.client.errors import ClientError, NoAnswerError, UnusableError
from saros.client.events import Event, line_of, send_lines
from saros.client.exchange import Ask, Call, Reply, Retries, Talk, Wait, error_of, make
from saros.client.live import Events, LiveEvent

P = ParamSpec("P")
T = TypeVar("T")

_TIMEOUT_S = 5.0
_RETRIES = Retries()
# What httpx raises where it has no answer; the last one says that it was closed.
_FAILED = (httpx.RequestError, httpx.InvalidURL, RuntimeError)


class _Where:
    """Where the API is, and how it is asked."""

    def __init__(self, url: str, key: str | None, timeout_s: float) -> None:
        self._url, self._timeout_s = url.rstrip("/"), timeout_s
        self._headers = {"user-agent": f"saros-client/{saros.__version__}", "accept": "application/json"}
        if key is not None:
            self._headers["x-api-key"] = key

    def options(self, ask: Ask) -> dict[str, Any]:
        """Return a request as httpx takes it."""
        return {
            "method": ask.method,
            "url": self._url + ask.path,
            "params": list(ask.params) or None,
            "content": ask.content or None,
            "headers": {**self._headers, "content-type": ask.media_type} if ask.content else self._headers,
            "timeout": httpx.Timeout(self._timeout_s + ask.extra_s, connect=self._timeout_s),
        }

    def no_answer(self, error: Exception) -> ClientError:
        """Return what it means that no answer came."""
        if not isinstance(error, httpx.RequestError):
            return UnusableError(f"{self._url} cannot be asked: {error}")
        never = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
        return NoAnswerError(f"{self._url} gave no answer: {error or type(error).__name__}", sent=not never)

    @staticmethod
    def refused(reply: Reply) -> NoReturn:
        """Raise what an answer means that is none."""
        error = error_of(reply)
        assert error is not None, "it was no success"
        raise error


def _method(call: Callable[P, Call[T]]) -> "Callable[Concatenate[Client, P], T]":
    """Return the method that makes a call and waits for its answer."""

    @functools.wraps(call)
    def method(self: "Client", /, *arguments: P.args, **more: P.kwargs) -> T:
        return self.drive(make(call(*arguments, **more), self.retries))

    return method


def _coroutine(call: Callable[P, Call[T]]) -> "Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]":
    """Return the method that makes a call, to be awaited."""

    @functools.wraps(call)
    async def method(self: "AsyncClient", /, *arguments: P.args, **more: P.kwargs) -> T:
        return await self.drive(make(call(*arguments, **more), self.retries))

    return method


class Client:
    """A client that waits for its answers. Threads may share one."""

    def __init__(
        self, url: str, *, key: str | None = None, timeout_s: float = _TIMEOUT_S, retries: Retries = _RETRIES,
        http: httpx.Client | None = None,
    ) -> None:  # fmt: skip
        """`url` is where the API is. With `http` you bring TLS, proxies and limits of your own, and close it."""
        self.retries, self._where = retries, _Where(url, key, timeout_s)
        self._http, self._own = (httpx.Client(), True) if http is None else (http, False)

    recommend = _method(calls.recommend)
    recommend_many = _method(calls.recommend_many)
    recommend_guest = _method(calls.recommend_guest)
    rank = _method(calls.rank)
    rank_guest = _method(calls.rank_guest)
    similar = _method(calls.similar)
    popular = _method(calls.popular)
    stats = _method(calls.stats)
    get_item = _method(admin.get_item)
    put_item = _method(admin.put_item)
    patch_item = _method(admin.patch_item)
    delete_item = _method(admin.delete_item)
    batch_items = _method(admin.batch_items)
    get_user = _method(admin.get_user)
    erase_user = _method(admin.erase_user)
    gate = _method(admin.gate)
    change_gate = _method(admin.change_gate)
    simulate_gate = _method(admin.simulate_gate)

    def send_events(self, events: Iterable[Event]) -> Receipt:
        """Send events and return when they are acknowledged; those that are bad are in the receipt.

        UnsentError where some were not acknowledged, though it was tried again.
        """
        return self.drive(send_lines([line_of(event) for event in events], self.retries))

    def batcher(
        self, *, size: int = 500, every_s: float = 1.0, queue_max: int = 10_000, on_rejected: Report | None = None
    ) -> Batcher:
        """Return a batcher: it takes events one by one, and sends them many at a time, from a thread of its own."""
        room = Room(size, every_s, queue_max)
        return Batcher(lambda lines: self.drive(send_lines(lines, self.retries)), room, on_rejected)

    def live(self, count: int | None = None) -> Iterator[LiveEvent]:
        """Yield how the model stands, each second: so many times, or until you stop.

        It is not tried again: NoAnswerError where it breaks off.
        """
        events = Events()
        try:
            with self._http.stream(**self._where.options(calls.asked("/v1/live", count=count))) as answer:
                if not answer.is_success:
                    self._where.refused(Reply(answer.status_code, answer.headers, answer.read()))
                for piece in answer.iter_bytes():
                    yield from events.take(piece)
        except _FAILED as error:
            raise self._where.no_answer(error) from error

    def drive(self, talk: Talk[T]) -> T:
        """Do what a call asks for until it returns."""
        reply: Reply | ClientError | None = None
        try:
            while True:
                step = talk.send(reply)
                if isinstance(step, Wait):
                    time.sleep(step.seconds)
                    reply = None
                else:
                    reply = self._ask(step)
        except StopIteration as end:
            value: T = end.value
            return value

    def _ask(self, ask: Ask) -> Reply | ClientError:
        try:
            answer = self._http.request(**self._where.options(ask))
        except _FAILED as error:
            return self._where.no_answer(error)
        return Reply(answer.status_code, answer.headers, answer.content)

    def close(self) -> None:
        """Let go of the connections."""
        if self._own:
            self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class AsyncClient:
    """A client to be awaited."""

    def __init__(
        self, url: str, *, key: str | None = None, timeout_s: float = _TIMEOUT_S, retries: Retries = _RETRIES,
        http: httpx.AsyncClient | None = None,
    ) -> None:  # fmt: skip
        """`url` is where the API is. With `http` you bring TLS, proxies and limits of your own, and close it."""
        self.retries, self._where = retries, _Where(url, key, timeout_s)
        self._http, self._own = (httpx.AsyncClient(), True) if http is None else (http, False)

    recommend = _coroutine(calls.recommend)
    recommend_many = _coroutine(calls.recommend_many)
    recommend_guest = _coroutine(calls.recommend_guest)
    rank = _coroutine(calls.rank)
    rank_guest = _coroutine(calls.rank_guest)
    similar = _coroutine(calls.similar)
    popular = _coroutine(calls.popular)
    stats = _coroutine(calls.stats)
    get_item = _coroutine(admin.get_item)
    put_item = _coroutine(admin.put_item)
    patch_item = _coroutine(admin.patch_item)
    delete_item = _coroutine(admin.delete_item)
    batch_items = _coroutine(admin.batch_items)
    get_user = _coroutine(admin.get_user)
    erase_user = _coroutine(admin.erase_user)
    gate = _coroutine(admin.gate)
    change_gate = _coroutine(admin.change_gate)
    simulate_gate = _coroutine(admin.simulate_gate)

    async def send_events(self, events: Iterable[Event]) -> Receipt:
        """Send events and return when they are acknowledged; see `Client.send_events`."""
        return await self.drive(send_lines([line_of(event) for event in events], self.retries))

    def batcher(
        self, *, size: int = 500, every_s: float = 1.0, queue_max: int = 10_000, on_rejected: Report | None = None
    ) -> AsyncBatcher:
        """Return a batcher: it takes events one by one, and sends them many at a time, from a task of its own."""
        room = Room(size, every_s, queue_max)
        return AsyncBatcher(lambda lines: self.drive(send_lines(lines, self.retries)), room, on_rejected)

    async def live(self, count: int | None = None) -> AsyncIterator[LiveEvent]:
        """Yield how the model stands, each second; see `Client.live`."""
        events = Events()
        try:
            async with self._http.stream(**self._where.options(calls.asked("/v1/live", count=count))) as answer:
                if not answer.is_success:
                    self._where.refused(Reply(answer.status_code, answer.headers, await answer.aread()))
                async for piece in answer.aiter_bytes():
                    for event in events.take(piece):
                        yield event
        except _FAILED as error:
            raise self._where.no_answer(error) from error

    async def drive(self, talk: Talk[T]) -> T:
        """Do what a call asks for until it returns."""
        reply: Reply | ClientError | None = None
        try:
            while True:
                step = talk.send(reply)
                if isinstance(step, Wait):
                    await asyncio.sleep(step.seconds)
                    reply = None
                else:
                    reply = await self._ask(step)
        except StopIteration as end:
            value: T = end.value
            return value

    async def _ask(self, ask: Ask) -> Reply | ClientError:
        try:
            answer = await self._http.request(**self._where.options(ask))
        except _FAILED as error:
            return self._where.no_answer(error)
        return Reply(answer.status_code, answer.headers, answer.content)

    async def close(self) -> None:
        """Let go of the connections."""
        if self._own:
            await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
