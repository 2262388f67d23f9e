"""Users read in the event loop that asks for them, without a thread and with little work for each command.

The client (`saros.adapters.redis.client`) makes the connection, with all that its address says. From then on a read is
one write of bytes, and the replies go straight to the parser: with the client's own commands a read of twenty users
takes ten times the CPU. What is read is what `Store.read_many` reads, under the same fences, in one transaction.

A cluster is read by `Store.read_many` in a thread: it knows which node has a shard, and what to do when that changes.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import hiredis
import numpy as np
from redis.asyncio.connection import AbstractConnection, ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from saros.adapters.redis.client import Address, translated
from saros.adapters.redis.store import Store, Users
from saros.errors import StoreError
from saros.redo.fence import FENCE_BYTES

_T = TypeVar("_T")

_MORE = object()  # the parser's word for a reply that is not whole yet
_THREADS = 2
_LAST = FENCE_BYTES - 1
assert len(str(_LAST)) == 2, "as its length is written"


class _Replies(asyncio.Protocol):
    """The replies of a connection, in the order in which they were asked for."""

    def __init__(self) -> None:
        self._parser = hiredis.Reader(notEnoughData=_MORE)
        self._waiting: deque[tuple[int, list[Any], asyncio.Future[list[Any]]]] = deque()
        self.lost = False

    def expect(self, count: int) -> "asyncio.Future[list[Any]]":
        """Return so many replies when they have come."""
        answer = asyncio.get_running_loop().create_future()
        self._waiting.append((count, [], answer))
        return answer

    def data_received(self, data: bytes) -> None:
        """Take bytes."""
        parser = self._parser
        try:
            parser.feed(data)
            while (reply := parser.gets()) is not _MORE:
                count, replies, answer = self._waiting[0]
                replies.append(reply)
                if len(replies) == count:
                    self._waiting.popleft()
                    if not answer.done():
                        answer.set_result(replies)
        except (hiredis.ProtocolError, IndexError) as error:
            self.connection_lost(error)

    def connection_lost(self, error: Exception | None) -> None:
        """Nothing more comes."""
        self.lost = True
        while self._waiting:
            answer = self._waiting.popleft()[2]
            if not answer.done():
                answer.set_exception(StoreError(f"the store does not answer: {error or 'it hung up'}"))


class UserReads:
    """Reads users of a model."""

    def __init__(self, address: Address, model: str, shards: int) -> None:
        self._address, self._model, self._shards = address, model, shards
        self._store: Store | None = None
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="store")
        self._opening = asyncio.Lock()
        self._connection: AbstractConnection | None = None
        self._replies = _Replies()
        self._replies.lost = True

    async def read(self, wanted: Mapping[int, Sequence[bytes]]) -> dict[int, Users]:
        """Return users of partitions by their keys' bytes, those of each partition with its fence (rule 16)."""
        if self._replies.lost:
            await self._open()
        assert self._store is not None, "it was opened"
        if self._connection is None:
            keys = {partition: np.frombuffer(b"".join(each), np.uint64) for partition, each in wanted.items()}
            return await self._in_thread(self._store.read_many, keys)
        try:
            async with asyncio.timeout(self._address.timeout_s):
                replies = await self._send(_packed(self._store, wanted))
        except TimeoutError:
            await self._close_connection()  # the replies may still come, and nobody waits for them
            raise StoreError(f"the store does not answer: nothing came in {self._address.timeout_s:g} s") from None
        return self._store.users_in(wanted, _answers(replies))

    async def ask(self, question: Callable[[Store], _T]) -> _T:
        """Let a thread ask the store something else."""
        if self._store is None:
            await self._open()
        assert self._store is not None, "it was opened"
        return await self._in_thread(question, self._store)

    def _send(self, commands: tuple[bytes, int]) -> "asyncio.Future[list[Any]]":
        assert self._connection is not None
        writer = self._connection._writer
        assert writer is not None, "it is connected"
        answer = self._replies.expect(commands[1])
        writer.transport.write(commands[0])
        return answer

    async def _in_thread(self, do: Callable[..., _T], *arguments: object) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, do, *arguments)

    async def _open(self) -> None:
        """Connect."""
        async with self._opening:
            if not self._replies.lost:
                return
            await self._close_connection()
            if self._store is None:
                self._store = await self._in_thread(Store, self._address, self._model, self._shards)
            if self._store.is_cluster:
                self._replies.lost = False
                return
            options = self._address.options() | {"retry": Retry(NoBackoff(), 0)}
            pool: Any = ConnectionPool.from_url(self._address.url, **options)
            connection = pool.make_connection()
            try:
                with translated():
                    await connection.connect()
            except BaseException:
                await connection.disconnect(nowait=True)  # half of a connection may be there
                raise
            replies = _Replies()
            connection._writer.transport.set_protocol(replies)
            self._connection, self._replies = connection, replies

    async def _close_connection(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            self._replies.connection_lost(None)
            await connection.disconnect(nowait=True)

    async def close(self) -> None:
        """Close all connections."""
        await self._close_connection()
        await asyncio.to_thread(self._end)

    def _end(self) -> None:
        self._threads.shutdown()
        if self._store is not None:
            self._store.close()


def _packed(store: Store, wanted: Mapping[int, Sequence[bytes]]) -> tuple[bytes, int]:
    """Return the commands of one transaction, as they are sent, and how many replies there will be."""
    parts, replies = [b"*1\r\n$5\r\nMULTI\r\n"], 2
    for partition, keys in wanted.items():
        head, prefix = store.keys.head(partition), store.keys.users(partition)
        parts.append(
            b"*4\r\n$8\r\nGETRANGE\r\n$%d\r\n%b\r\n$1\r\n0\r\n$2\r\n%d\r\n" % (len(head), head, FENCE_BYTES - 1)
        )
        replies += 1
        if keys:
            parts.append(b"*%d\r\n$4\r\nMGET" % (len(keys) + 1))
            before = b"\r\n$%d\r\n%b" % (len(prefix) + len(keys[0]), prefix)
            parts += [before + key for key in keys]
            parts.append(b"\r\n")
            replies += 1
    parts.append(b"*1\r\n$4\r\nEXEC\r\n")
    return b"".join(parts), replies


def _answers(replies: list[Any]) -> list[Any]:
    """Return what a transaction answered."""
    for reply in (*replies, *(replies[-1] if isinstance(replies[-1], list) else ())):
        if isinstance(reply, hiredis.ReplyError):
            raise StoreError(f"the store refuses: {reply}")
    answers: list[Any] = replies[-1]
    return answers
