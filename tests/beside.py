"""What goes on beside a test, in a thread of its own."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeated(action: Callable[[], object], pause_s: float) -> Iterator[None]:
    """Do something again and again, with a pause each time; whoever waits for the end hears what went wrong."""
    done, failed = threading.Event(), list[Exception]()

    def repeat() -> None:
        try:
            while not done.wait(pause_s):
                action()
        except Exception as error:
            failed.append(error)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    assert not failed, failed
