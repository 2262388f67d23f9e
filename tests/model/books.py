"""What a record does to the users and ledgers in a shard."""

from collections.abc import Collection

from tests.model.world import ADDED, WAITING, Entry, Ledger, Record, ShardState, World


def waiting_in(ledger: Ledger) -> dict[int, Entry]:
    """The blocks of a ledger that wait, by number."""
    return {number: entry for (number, _), entry in ledger.items() if entry.sign == WAITING}


def written_late(world: World) -> tuple[int, ...]:
    """The signs of ledger entries that are not written together with the user, where a rule is left out."""
    if not world.rule("ledger fence"):
        return (WAITING, ADDED)
    return () if world.rule("waiting fence") else (WAITING,)


def write_users(state: ShardState, p: int, record: Record) -> None:
    """Users are absolute: the last one wins."""
    state.users.update({(p, user): value for user, value in record.users.items()})


def write_ledgers(world: World, state: ShardState, p: int, record: Record, signs: Collection[int]) -> None:
    """Put the entries with these signs into their ledgers."""
    for user in record.cleared | record.blocks.keys():
        state.ledgers[p, user] = ledger_behind(world, state.ledgers.get((p, user), {}), user, record, signs)


def ledger_behind(
    world: World, ledger: Ledger, user: int, record: Record, signs: Collection[int] = (WAITING, ADDED)
) -> Ledger:
    """A user's ledger behind a record; only entries with these signs are put into it."""
    if ADDED in signs and user in record.cleared:
        left = {} if world.rule("waiting ended") else waiting_in(ledger)
        ledger = {(number, 0): entry for number, entry in left.items()}
    ledger = dict(ledger)
    for number, entry in record.blocks.get(user, {}).items():
        if entry.sign in signs:
            ledger[number, _copy_of(world, ledger.get((number, 0)), entry)] = entry
    return ledger


def _copy_of(world: World, old: Entry | None, new: Entry) -> int:
    """0: the new entry takes the place of the old one. Where a rule is left out it is put beside it."""
    beside = not world.rule("ledger keys")
    if old is not None and old.sign == WAITING and new.sign == ADDED:
        beside = beside or not world.rule("released over")
    return world.new_nonce(0) if old is not None and beside else 0
