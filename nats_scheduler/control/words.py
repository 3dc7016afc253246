"""The headers and the body of a schedule as its author wrote them: compare them, and change some of them.

The rules:

- Two messages say the same if they have the same body, the same header names, and the same values of each, in the
  order of that name. The order of different names does not count: client libraries write them in any order.
- What concerns a publish and not the schedule does not count: `Nats-Msg-Id`, and what would lend a right of the
  client that publishes it again (`message.rights`). The roll-up that a server of 2.12 or later adds does not count
  either.
- An edit changes only the lines that it names, each in its place; new headers are appended.

Cost: some microseconds. Limit: the size of a block is not checked here.
"""

from collections.abc import Collection

from nats_scheduler.control.errors import NotPossibleError, RejectedError
from nats_scheduler.message.dialect import Dialect
from nats_scheduler.message.headers import (
    CRLF,
    MSG_ID,
    MSG_ROLLUP,
    decoded,
    header_items,
    with_headers,
    without_headers,
    without_status,
)
from nats_scheduler.message.policies import POLICY_NAMES, policy_header
from nats_scheduler.message.rights import without_lent
from nats_scheduler.message.schedule_form import BESIDE_PATTERN, Edit, hidden_fault, hidden_headers
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.patterns import At, Every, parse_pattern

MAX_SHOWN_CHARS = 80
"""Characters of a header's name that an error message shows."""


def named_header(dialect: Dialect, name: str) -> bytes:
    """Return the header that a name stands for: that of a field, such as `ttl` or `tz`, or a policy such as `X-Jitter`.

    The case of a policy does not matter. Any other name is that of a header as it is written.
    """
    shorts = {field.typed: field.header(dialect) for field in BESIDE_PATTERN}
    policy = next((one for one in POLICY_NAMES if one.lower() == name.lower()), None)
    if policy is not None:
        return policy_header(policy, dialect)
    return shorts.get(name) or name.encode("utf-8", "surrogateescape")


def publishable(block: bytes) -> bytes:
    """Return a block without what would be a condition, a part of a batch or a trace of another publish."""
    return without_lent(without_status(block), is_fire=False)


def publishable_again(block: bytes) -> bytes:
    """Return a stored block as it can be stored again: a server that knows its `Nats-Msg-Id` would store nothing."""
    return without_headers(publishable(block), (MSG_ID,))


def is_same(stored: StoredMessage, block: bytes, body: bytes, but_for: Collection[bytes] = ()) -> bool:
    """Return whether a stored message says the same as these headers and this body.

    Headers called one of `but_for` do not count if only the stored message has them.
    """
    if (stored.body or b"") != body:
        return False
    ours, theirs = words_of(block), words_of(stored.block)
    for name in but_for:
        if name not in ours:
            theirs.pop(name, None)
    if MSG_ROLLUP not in ours and theirs.get(MSG_ROLLUP) == [b"sub"]:
        del theirs[MSG_ROLLUP]
    return ours == theirs


def is_same_pattern(one: bytes, other: bytes) -> bool:
    """Return whether two values of `Nats-Schedule` mean the same: equal texts, or `@every 60m` and `@every 1h`."""
    if one == other:
        return True
    match (parse_pattern(decoded(one)), parse_pattern(decoded(other))):
        case Every() as ours, Every() as theirs:
            return ours.interval == theirs.interval
        case At() as ours, At() as theirs:
            return ours.instant == theirs.instant
    return False


def edited(block: bytes, edit: Edit) -> bytes:
    """Return the block with headers set and removed.

    Raises `NotPossibleError` if one of them is no header, and `RejectedError` if a value hides a header that was found
    before, or that is set.
    """
    new, gone = dict(edit.set), frozenset(edit.unset)
    _check(edit, new)
    lines = (without_status(block) or b"NATS/1.0\r\n\r\n").split(CRLF)
    kept, placed = lines[:1], set[bytes]()
    for line in lines[1:-2]:
        name, colon, _value = line.partition(b":")
        if colon and name in new:
            if name not in placed:
                kept.append(b"%b: %b" % (name, new[name]))
                placed.add(name)
        elif not colon or name not in gone:
            kept.append(line)
    changed = with_headers(CRLF.join([*kept, b"", b""]), [(n, v) for n, v in new.items() if n not in placed])
    if fault := hidden_fault(changed, but_for=set(hidden_headers(block)) - new.keys()):
        raise RejectedError(fault)
    return changed


def words_of(block: bytes) -> dict[bytes, list[bytes]]:
    """Return what a block says of its schedule: the values of each header in their order."""
    words: dict[bytes, list[bytes]] = {}
    for name, value in header_items(publishable_again(block)):
        words.setdefault(name, []).append(value)
    return words


def _check(edit: Edit, new: dict[bytes, bytes]) -> None:
    for name in (*new, *edit.unset):
        if not name or not name.isascii() or any(byte <= 32 or byte == 127 for byte in name) or b":" in name:
            raise NotPossibleError(f"{decoded(name)[:MAX_SHOWN_CHARS]!r} is no name of a header")
    for name, value in new.items():
        if b"\r" in value or b"\n" in value:
            raise NotPossibleError(f"the value of {decoded(name)} has a line break: a header is one line")
    if len(new) < len(edit.set):
        raise NotPossibleError("a header is set twice: expected each name once")
    if both := new.keys() & set(edit.unset):
        raise NotPossibleError(f"{decoded(min(both))} is to be set and to be removed: expected one of them")
