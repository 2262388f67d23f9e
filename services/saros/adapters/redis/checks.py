"""What the store's servers must be like for the promises to hold.

All of it stands in INFO, which managed services allow where they refuse CONFIG.
"""

from collections.abc import Mapping
from typing import Any

from saros.adapters.redis.store import Store
from saros.errors import RefusedError

VERSION_LEAST = (6, 2)


def check_server(store: Store) -> list[str]:
    """Raise `RefusedError` where a server will not do; return warnings about what may."""
    return [warning for name, info in store.server_info().items() for warning in judge(name, info)]


def judge(name: str, info: Mapping[str, Any]) -> list[str]:
    """Judge one server by what it says of itself."""
    version = str(info.get("redis_version", ""))
    numbers = version.split(".")[:2]
    unchecked = []
    if len(numbers) < 2 or not all(number.isdecimal() for number in numbers):
        unchecked.append("its version")
    elif tuple(map(int, numbers)) < VERSION_LEAST:
        raise RefusedError(f"{name} is version {version}", "use Redis 6.2 or newer, or Valkey")
    policy = info.get("maxmemory_policy")
    if policy is None:
        unchecked.append("maxmemory-policy (it must be noeviction)")
    elif policy != "noeviction":
        raise RefusedError(
            f"{name} throws keys away when its memory is full (maxmemory-policy {policy})",
            "set it to noeviction: CONFIG SET maxmemory-policy noeviction, and in the server's configuration file",
        )
    append_only = info.get("aof_enabled")
    if append_only is None:
        unchecked.append("whether AOF is on")
    warnings = [f"{name} does not tell {', '.join(unchecked)}: not checked"] if unchecked else []
    if append_only == 0:
        warnings.append(f"{name} has AOF off: a restart loses what it holds; set appendonly yes")
    return warnings
