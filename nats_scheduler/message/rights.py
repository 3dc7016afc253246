r"""Say for each header that a server acts on whether a message may carry it that is published for another client.

A fire is published with the sidecar's permissions, for the author of a schedule, whose permissions are not known. So a
header by which the server does more than to store the message lends a right. `HEADERS` is the table of all of them, of
nats-server 2.9 to the one after 2.15; `docs/reference/headers.md` shows the same table.

The rules:

- A header that lends a right is never passed on. All else stays, byte for byte.
- Servers search a block for a name after CRLF, remove what begins after a bare LF, and look for traces line by line and
  in any case. They differ by version in what hides a header, and what they remove first can uncover one. So whatever
  begins with such a name after an LF, up to the next CRLF, counts as such a header, hidden or not.

Cost: less than a microsecond for ten headers, and a search by a pattern if one of them begins with `Nats-`.
"""

import re
from typing import Literal, NamedTuple

from nats_scheduler.message.headers import CRLF, EMPTY_BLOCK, decoded

Carried = Literal["yes", "no"]


class ActedOn(NamedTuple):
    """A header that some server acts on when a message is published, or when it is stored or delivered later."""

    name: str
    """With `…` at its end it stands for all names that begin so."""
    since: str
    """The first release that acts on it; `2.9` for all that are looked at."""
    effect: str
    """What the server does."""
    carried: Carried
    """Whether a fire may carry it for the author of its schedule or its source."""
    why: str


HEADERS = (
    ActedOn(
        "Nats-Trace-…",
        "2.11",
        "publishes a trace to any subject, or stores nothing; in any case of letters",
        "no",
        "it would publish with the sidecar's permissions",
    ),
    ActedOn("Nats-Rollup", "2.9", "deletes other messages", "no", "only `Nats-Schedule-Rollup` rolls up, the target"),
    ActedOn("Nats-Msg-Id", "2.9", "stores a repetition only once", "no", "it is the sidecar's own"),
    ActedOn("Nats-Expected-…", "2.9", "stores the message on a condition", "no", "it is the sidecar's own"),
    ActedOn("Nats-TTL", "2.11", "deletes the message later", "no", "only `Nats-Schedule-TTL` sets one"),
    ActedOn("Nats-Schedule…", "2.12", "schedules, and ends schedules", "no", "the sidecar stamps the fire itself"),
    ActedOn("Nats-Batch-…", "2.12", "waits for the rest of a batch", "no", "a fire is one message"),
    ActedOn("Nats-Incr", "2.12", "adds to a counter, or refuses (10168)", "no", "a fire counts nothing"),
    ActedOn(
        "Nats-Stream-Source",
        "2.9",
        "takes it for a copy, and continues copying from there; from 2.15 on it refuses (10227)",
        "no",
        "a stream that has sources would skip messages",
    ),
    ActedOn(
        "Nats-Request-Info",
        "2.9",
        "believes in a request across accounts that it names the client, and removes it",
        "no",
        "it would name another client, and its removal can uncover other headers",
    ),
    ActedOn(
        "traceparent",
        "2.11",
        "traces to the subject that the account names (`msg_trace`); in any case of letters",
        "yes",
        "the operator names the subject, and every publisher can do so",
    ),
    ActedOn("Uber-Trace-Id", "2.9", "measures a service", "yes", "who exports the service names the subject"),
    ActedOn("X-B3-…", "2.9", "measures a service", "yes", "who exports the service names the subject"),
    ActedOn("B3", "2.9", "measures a service", "yes", "who exports the service names the subject"),
    ActedOn("Accept-Encoding", "2.9", "compresses its own answers and traces", "yes", "nobody else is concerned"),
    ActedOn(
        "KV-Operation", "2.11", "leaves no delete marker when the message expires", "yes", "it says what the message is"
    ),
    ActedOn(
        "Nats-Marker-Reason",
        "2.11",
        "leaves no delete marker when the message expires",
        "yes",
        "it says what the message is",
    ),
    ActedOn(
        "Nats-Counter-Sources", "2.12", "reads it in counters", "yes", "without `Nats-Incr` a counter stores nothing"
    ),
    ActedOn("Nats-Required-Api-Level", "2.12", "refuses requests and batches", "yes", "a fire is neither"),
    ActedOn("Nats-Stream-Identity", "2.15", "says in answers which stream it is", "yes", "a fire is no request"),
    ActedOn("Nats-Response-Type", "2.9", "chooses the form of an answer", "yes", "a fire is no request"),
    ActedOn("Nats-Last-Consumer", "2.9", "checks for gaps while it copies", "yes", "it counts only beside a status"),
    ActedOn("Nats-Last-Stream", "2.9", "checks for gaps while it copies", "yes", "it counts only beside a status"),
    ActedOn("Nats-Consumer-Stalled", "2.9", "answers there while it copies", "yes", "it counts only beside a status"),
    ActedOn("Nmqtt-…", "2.9", "delivers the message to MQTT clients or does not", "yes", "it concerns this message"),
)
"""All headers that a server acts on. A status on the first line is one too: a fire has none."""

_TO_THE_END_OF_A_LINE = rb").*?(?:\r\n|\Z))+"
_LENT = (
    rb"\r?\n(?:(?:(?i:Nats-Trace-)|Nats-Expected-|Nats-Batch-|(?:Nats-Request-Info|Nats-Incr):"
    rb"|Nats-Stream-Source:(?! *\r\n)"  # an empty one means nothing to any version
)
_LENT_BY_A_PUBLISH = re.compile(_LENT + _TO_THE_END_OF_A_LINE, re.DOTALL)
# After a bare LF the native scheduler keeps the roll-up of the schedule itself (`generated.as_stored_natively`).
_LENT_BY_A_FIRE = re.compile(
    _LENT + rb"|Nats-Schedule|Nats-Rollup:(?!(?<=[^\r]\nNats-Rollup:) sub\r\n)" + _TO_THE_END_OF_A_LINE, re.DOTALL
)
_BEGINNING = b"\nnats-"
"""What each of them begins with, in lower case: few blocks have it once the headers of the schedule are removed."""
_NEVER_ASKED_FOR = re.compile(rb"\n((?i:Nats-Trace-)[^\r\n:]*|(?:Nats-Request-Info|Nats-Incr)(?=:))")
_ROLLUP = re.compile(rb"\nNats-Rollup:([^\r\n]*)")


def without_lent(block: bytes, *, is_fire: bool = True) -> bytes:
    r"""Remove the headers that lend a right; b"" if nothing is left.

    Without `is_fire` the block is that of a schedule, and keeps its own headers and its roll-up.
    """
    if _BEGINNING not in block.lower():
        return block
    left, removed = (_LENT_BY_A_FIRE if is_fire else _LENT_BY_A_PUBLISH).subn(_line_end, block)
    return b"" if removed and len(left) <= len(EMPTY_BLOCK) else left


def lent_header(block: bytes) -> str | None:
    """Return the name of a header that nobody may ask to have published; None if there is none."""
    found = _NEVER_ASKED_FOR.search(block)
    return None if found is None else decoded(found[1])


def wide_rollup(block: bytes) -> bytes | None:
    """Return the value of a `Nats-Rollup`, hidden or not, by which more than the subject is rolled up; None if none."""
    values = (value.strip(b" \t") for value in _ROLLUP.findall(block))
    return next((value for value in values if value.lower() not in (b"", b"sub")), None)


def _line_end(removed: re.Match[bytes]) -> bytes:
    """Return the end of the line before; what had no end itself leaves the end of the block too."""
    return CRLF if removed[0].endswith(CRLF) else CRLF + CRLF
