"""What a topic must be like to keep what it acknowledged: when a broker is lost, and for good.

A topic with few replicas works, and is right for a single machine; so that is a warning. A log that forgets by itself,
or takes no record of the size that we write, is refused: a broker that makes topics by itself makes such ones.
"""

from collections.abc import Mapping

from saros.adapters.kafka.admin import IN_SYNC, IN_SYNC_LEAST, REPLICAS_LEAST, Admin, Copies
from saros.errors import InputError

_FOR_GOOD = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
_LARGEST = "max.message.bytes"
_TIME, _APPENDED = "message.timestamp.type", "LogAppendTime"


def check_topic(admin: Admin, name: str) -> str:
    """Return a warning where a topic may lose what it acknowledged; empty where it does not, or nobody can tell."""
    copies = admin.copies(name)
    return judge_copies(name, copies) if copies is not None else ""


def judge_copies(name: str, copies: Copies) -> str:
    """Judge a topic by its replicas."""
    wrong, todo = [], []
    if copies.replicas < REPLICAS_LEAST:
        wrong.append(f"replication factor {copies.replicas}")
        todo.append(f"give it {REPLICAS_LEAST} replicas (kafka-reassign-partitions)")
    if copies.in_sync is None:
        wrong.append(f"a {IN_SYNC} that the broker does not tell")
        todo.append(f"look that it is {IN_SYNC_LEAST}")
    elif copies.in_sync < IN_SYNC_LEAST:
        wrong.append(f"{IN_SYNC} {copies.in_sync}")
        first = "then " if copies.replicas < REPLICAS_LEAST else ""
        todo.append(f"{first}set {IN_SYNC}={IN_SYNC_LEAST} (kafka-configs --alter)")
    if not wrong:
        return ""
    return f"topic {name} has {' and '.join(wrong)}: a lost broker may lose what was acknowledged; {', '.join(todo)}"


def check_times(admin: Admin, name: str) -> str:
    """Return a warning where senders say when a message came: their clocks may be wrong, and the log's time bounds
    those of events. Empty where the broker says it, or nobody can tell."""
    if admin.settings(name).get(_TIME, _APPENDED) == _APPENDED:
        return ""
    return (
        f"topic {name} has the time of its senders, and trusts their clocks; "
        f"set {_TIME}={_APPENDED} (kafka-configs --alter)"
    )


def check_log(admin: Admin, name: str, message_bytes: int) -> None:
    """Refuse a topic that is to keep all it gets and does not, or takes no message of that size."""
    wrong = judge_log(admin.settings(name), message_bytes)
    if wrong:
        raise InputError(
            f"topic {name} has {', '.join(f'{setting}={found}' for setting, (found, _) in wrong.items())}: "
            "the model's log is kept whole, and takes records of any size that are written",
            f"kafka-configs --alter --entity-type topics --entity-name {name} --add-config "
            + ",".join(f"{setting}={needed}" for setting, (_, needed) in wrong.items()),
        )


def judge_log(settings: Mapping[str, str], message_bytes: int) -> dict[str, tuple[str, str]]:
    """Return which settings of a log are wrong: what each is, and what it should be. What nobody tells is right."""
    wrong = {
        setting: (settings[setting], needed)
        for setting, needed in _FOR_GOOD.items()
        if settings.get(setting, needed) != needed
    }
    if int(settings.get(_LARGEST, message_bytes)) < message_bytes:
        wrong[_LARGEST] = settings[_LARGEST], str(message_bytes)
    return wrong
