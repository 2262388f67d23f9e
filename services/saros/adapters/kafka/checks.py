"""What a topic must be like to keep what it acknowledged when a broker is lost.

A topic with less works, and is right for a single machine; so this warns and refuses nothing.
"""

from saros.adapters.kafka.admin import IN_SYNC, IN_SYNC_LEAST, REPLICAS_LEAST, Admin, Copies


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
