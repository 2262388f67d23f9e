"""A trainer that sleeps in the middle of a commit, while another goes on, and comes back."""

import signal

import pytest

from tests.servers import free_ports
from tests.trainer.faults import LONG
from tests.trainer.runs import Model, await_until, is_stopped, metric, running


# It has a record that nobody has seen; or shards to write that another has written since.
@pytest.mark.parametrize("point", ["learned", "sent", "accepted", "between"] if LONG else ["learned"])
def test_what_it_had_in_hand_loses(model: Model, point: str) -> None:
    (port,) = free_ports(1)
    users = model.approach()
    model.send(300)
    late = model.trainer(SAROS_TEST_STOP=f"{point}:3", SAROS_TRAINER__METRICS_PORT=str(port))
    with running([late]):
        await_until(lambda: is_stopped(late), what=model.logs)
        other = model.trainer()
        with running([other]):
            model.cross(users)
            model.send(100)
            model.await_learned()  # the other does it: it begins at what the first one had not brought into the log
            late.send_signal(signal.SIGCONT)
            if point == "learned":
                await_until(lambda: model.beaten() > 0, what=model.logs)  # it came, and does not count
                lost = ("saros_records_rejected_total", "saros_foreign_records_total")
                await_until(lambda: sum(metric(port, name) for name in lost) > 0, what=model.logs)
                assert "partition begins anew" in model.logs(1000)
            model.send(100)
            model.await_learned()
            for trainer in (late, other):
                trainer.send_signal(signal.SIGTERM)
                assert trainer.wait(20) == 0, model.logs()
    model.drain()
    model.check()
