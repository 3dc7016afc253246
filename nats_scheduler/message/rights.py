r"""Say for each header that a server acts on whether a message may carry it that is published for another client.

A fire is published with the sidecar's permissions, for the author of a schedule, whose permissions are not known. So a
header by which the server does more than to store the message lends a right. `docs/reference/headers.md` ("What a fire
may carry") has the table of all that servers act on, of nats-server 2.9 to the one after 2.15. Tests hold this module
to it.

The rules:

- A header that lends a right is never passed on. All else stays, byte for byte.
- Servers search a block for a name after CRLF, remove what begins after a bare LF, and look for traces line by line and
  in any case. They differ by version in what hides a header, and what they remove first can uncover one. So whatever
  begins with such a name after an LF, up to the next CRLF, counts as such a header, hidden or not.

Cost: less than a microsecond for ten headers, and a search by a pattern if one of them begins with `Nats-`.
"""

import re

from nats_scheduler.message.headers import CRLF, EMPTY_BLOCK, decoded

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
"""The beginning of each of them, in lower case: few blocks have it once the headers of the schedule are removed."""
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
