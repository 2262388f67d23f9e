"""The whole service as child processes: started in order of what needs what, watched, and ended in the other order.

    1  kernels  compiled, if they were not before; beside all that follows
    2  store    the embedded one, unless one is given
    3  broker   likewise; ready when it has said its address
    4  api      as soon as both are there: its page can be seen while kernels are still compiled
    5  rebase   where the store holds a model and the broker is embedded, which forgot the model's log when it ended
    6  trainer  when kernels and store are ready for it; the API is ready when the trainer has begun a log
    7  traffic  when the API is ready

Invariants: no child outlives this process, however that ends (`saros.children`). A child that ends before it is told to
ends all others. The first signal ends all in order, the second at once.
"""

import fcntl
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import FrameType

import saros
from saros.adapters.redis import EmbeddedStore
from saros.children import last_words
from saros.errors import InputError, SarosError
from saros.kernels import is_whole
from saros.up.looks import Place, Pulses, any_port, free_port, genesis_of, is_free, last_object
from saros.up.parts import Part
from saros.up.plan import Plan, kept, settings_for
from saros.up.screen import SHOW_CURSOR, Row, Screen, Status

_TICK_S, _BOUND_S = 0.1, 5.0
_START_S, _KERNELS_S, _READY_S = 60.0, 900.0, 180.0
_DYING_S = 3.0  # what an API that was killed may take to let go of its port
# All of it within ten seconds, the stream's one and the store's two included. What is killed has lost nothing.
_END_S = {"traffic": 2.0, "kernels": 0.1, "rebase": 0.5, "api": 2.5, "trainer": 3.0, "broker": 0.2}
_WORKS = ("kernels", "rebase")  # have a work to do, and end when it is done
_ADDRESS = "SAROS_KAFKA__BOOTSTRAP="  # what a broker says that is ready
_STARTED = "trainer was started"  # what a trainer says that is


class _AskedError(Exception):
    """A signal says that we are to end."""


class DiedError(SarosError):
    """A child ended that nobody had told to; `words` are its last ones."""

    def __init__(self, name: str, code: int, words: str) -> None:
        super().__init__(f"{name} ended with code {code}, so all the rest was ended, too")
        self.words = words


def _noted(note: Path) -> int:
    """Return the port of a note; 0 where there is none, or none that can be read: a full disk leaves it empty."""
    with suppress(OSError, ValueError):
        return int(note.read_bytes())
    return 0


class Up:
    """Runs all of it, once."""

    def __init__(self, plan: Plan, screen: Screen) -> None:
        self._plan, self._screen = plan, screen
        self._place = Place(plan.host, plan.port)
        self._store: EmbeddedStore | None = None
        self._parts: dict[str, Part] = {}  # those that run, in the order they were started
        self._rows: dict[str, Row] = {}
        self._pulses: Pulses | None = None
        self._kept = kept(plan, None)
        self._answers = self._ready = False
        self._asked, self._bound_s = 0, 0.0

    def run(self) -> None:
        """Start everything and stay until a signal comes; raise where something ends before."""
        with ExitStack() as stack:
            numbers = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
            if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
                numbers.remove(signal.SIGHUP)  # as `nohup` wants it
            for number in numbers:
                stack.callback(signal.signal, number, signal.signal(number, self._ask))
            self._own_directory(stack)
            stack.callback(self._end)
            try:
                self._start()
                self._until(lambda: False, "", float("inf"))
            except _AskedError:
                self._screen.note("ending all of it; once more ends it at once")

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._asked += 1
        if self._asked > 1:
            # No child lives longer than we do.
            if sys.stdout.isatty():
                os.write(sys.stdout.fileno(), SHOW_CURSOR.encode())
            os._exit(1)

    # --- starting ----------------------------------------------------------------------------------------------------

    def _own_directory(self, stack: ExitStack) -> None:
        """Make the directory ours for as long as we run."""
        directory = self._plan.data_dir
        try:
            self._plan.logs.mkdir(0o700, parents=True, exist_ok=True)
            lock = stack.enter_context((directory / "up.lock").open("wb"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            hint = "stop it, or give another --data-dir"
            raise InputError(f"another `saros up` runs with {directory}", hint) from None
        except OSError as error:
            hint = "give another --data-dir"
            raise InputError(f"{directory} cannot be written: {error.strerror}", hint) from None

    def _take_port(self) -> int:
        """Return the API's port, and note it until we end in order: a run that was killed leaves an API that dies."""
        plan, note = self._plan, self._plan.data_dir / "up.port"
        left = _noted(note)
        with suppress(SarosError):
            self._until(lambda: not left or is_free(plan.host, left), "the last run's port", _DYING_S)
        port = free_port(plan.host, plan.port, given=plan.port_given)
        note.write_text(str(port))
        return port

    def _start(self) -> None:
        plan, cold = self._plan, not is_whole()
        self._place = Place.new(plan.host, self._take_port(), plan.asks_for_keys)
        if not plan.port_given and self._place.port != plan.port:
            self._screen.note(f"port {plan.port} is taken, so it is {self._place.port}")
        if cold:
            self._begin("kernels", "are compiled, once; the page is there before", ["warm"], plan.environ)
        broker = None if plan.bootstrap else self._begin("broker", "embedded", ["broker"], plan.environ)
        store_url = self._start_store()
        bootstrap = plan.bootstrap if broker is None else self._address(broker)
        self._show("broker", bootstrap if plan.bootstrap else f"embedded, {bootstrap}", "runs")
        rebases = broker is not None and self._holds_model(store_url)
        environ = settings_for(plan, self._place, bootstrap, store_url, plan.metrics_port or any_port())
        self._begin("api", self._place.url, ["api"], environ)
        if rebases:
            self._rebase(environ)
        if cold:
            self._until(self._is_answering, "the API to answer", _START_S)
            self._screen.note(f"the page is at {self._place.url}; kernels are compiled, once: it takes a minute or two")
            self._await_end("kernels", _KERNELS_S)
        metrics = f"metrics at 127.0.0.1:{environ['SAROS_TRAINER__METRICS_PORT']}"
        trainer = self._begin("trainer", metrics, ["trainer"], environ)
        # Behind a rebase the API has a log to follow before there is somebody who writes it.
        self._until(lambda: _STARTED in trainer.said(), "the trainer to start", _READY_S)
        self._show("trainer", metrics, "runs")
        self._until(self._is_ready, "the API to be ready", _READY_S)
        self._show("api", self._place.url, "runs")
        self._pulses = Pulses(self._place)
        if plan.traffic:
            command = ["simulate", "--json", "--api", self._place.url, *plan.traffic]
            what = f"saros simulate {' '.join(plan.traffic)}"
            self._begin("traffic", what, command, {**environ, "SAROS_CLIENT__KEY": self._place.key})
            self._show("traffic", what, "runs")

    def _start_store(self) -> str:
        plan = self._plan
        if plan.store.url:
            self._show("store", "given", "runs")
            return plan.store.url
        self._show("store", f"embedded, {plan.store_dir}", "starts")
        self._store = EmbeddedStore(plan.store_dir, look=self._check_asked)
        self._show("store", f"embedded, {plan.store_dir}", "runs")
        return self._store.address

    def _begin(self, name: str, what: str, command: list[str], environ: Mapping[str, str]) -> Part:
        self._show(name, what, "starts")
        part = self._parts[name] = Part(name, command, environ, self._plan.logs)
        return part

    def _address(self, broker: Part) -> str:
        """Wait until the embedded broker says where it is."""

        def lines() -> list[str]:
            return [line for line in broker.said().splitlines(keepends=True) if line.startswith(_ADDRESS)]

        self._until(lambda: any(line.endswith("\n") for line in lines()), "the broker to start", _START_S)
        return lines()[0].strip().removeprefix(_ADDRESS)

    def _holds_model(self, store_url: str) -> bool:
        """True if the store holds a model; refuse one whose log may be alive on another broker."""
        plan = self._plan
        found = genesis_of(plan.store._replace(url=store_url), plan.model, plan.items_max)
        if found is not None and found.redo_topic_id:
            raise InputError(
                f"the store holds a model {plan.model!r} whose log is on a broker of your own",
                "set SAROS_KAFKA__BOOTSTRAP to that broker, or give SAROS_MODEL__NAME another name",
            )
        return found is not None

    def _rebase(self, environ: Mapping[str, str]) -> None:
        """Let the store's model go on with a new log."""
        part = self._begin("rebase", "a new log for the model in the store", ["rebase", "--json"], environ)
        self._await_end("rebase", _START_S)
        told = last_object(part.said()) or {}
        self._kept = kept(self._plan, told)
        self._screen.note("the model in the store goes on with a new log")

    # --- watching ----------------------------------------------------------------------------------------------------

    def _until(self, true: Callable[[], bool], what: str, most_s: float) -> None:
        """Return when something is so; raise where we are to end, where a child has, or where it takes too long."""
        until_s = time.monotonic() + most_s
        while not true():
            self._look()
            if time.monotonic() > until_s:
                raise SarosError(f"waited {most_s:g} s for {what} — see the logs in {self._plan.logs}")
            time.sleep(_TICK_S)

    def _check_asked(self) -> None:
        if self._asked:
            raise _AskedError

    def _look(self) -> None:
        self._check_asked()
        for part in self._parts.values():
            if part.code is not None and (part.code or part.name not in _WORKS):
                raise DiedError(part.name, part.code, last_words(f"{part.name} has ended", part.said()))
        if self._store is not None and self._store.code is not None:
            words = last_words("the store has ended", self._store.log.read_text(errors="replace"))
            raise DiedError("store", self._store.code, words)
        if time.monotonic() > self._bound_s:
            self._bound_s = time.monotonic() + _BOUND_S
            for part in self._parts.values():
                part.bound()
        self._screen.show(self._status())

    def _await_end(self, name: str, most_s: float) -> None:
        """Wait until a child has done its work."""
        part = self._parts[name]
        self._until(lambda: part.code is not None, f"{name} to be done", most_s)
        self._look()
        self._parts.pop(name).end(0)
        self._show(name, self._rows[name].what, "done")

    def _is_answering(self) -> bool:
        """True when the API's page can be seen."""
        self._answers = self._answers or self._place.ask("/livez")[0] == 200
        return self._answers

    def _is_ready(self) -> bool:
        why = self._place.why_not_ready()
        self._answers, self._ready = self._answers or why is not None, why == []
        if why:
            self._show("api", f"{self._place.url}: {'; '.join(why)}", "starts")
        return self._ready

    def _show(self, name: str, what: str, state: str) -> None:
        self._rows[name] = Row(name, what, state)

    def _status(self) -> Status:
        traffic = self._parts.get("traffic")
        return Status(
            version=saros.__version__,
            url=self._place.url if self._answers else "",
            ready=self._ready,
            rows=list(self._rows.values()),
            kept=self._kept,
            pulse=self._pulses.latest if self._pulses is not None else None,
            traffic=last_object(traffic.said()) if traffic is not None else None,
        )

    # --- ending ------------------------------------------------------------------------------------------------------

    def _end(self) -> None:
        """End all children: those first that need the others."""
        if self._pulses is not None:
            self._pulses.close()
        for name, wait_s in _END_S.items():
            part = self._parts.pop(name, None)
            if name == "api" and "trainer" in self._parts:
                self._parts["trainer"].ask()  # neither needs the other, so both end at the same time
            if name == "broker" and self._store is not None:
                self._store.close()
            if part is not None:
                part.end(wait_s)
        if self._store is not None:
            self._store.close()
        (self._plan.data_dir / "up.port").unlink(missing_ok=True)
