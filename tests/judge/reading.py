"""Read the history that a judge takes from stored messages, of any publisher, and from the files of servers.

As the server does (`filestore.go`): a file is a row of records, of a length, a sequence, a time, the length of the
subject, the subject, the length of the headers if there are any, the headers, the body and a checksum. Bits say that
there are headers, that a record is erased, or that it is only the note of a removal. A message that is removed in any
other way stays written, unless most of 2 MB are removed.
"""

import re
import struct
from pathlib import Path

from nats_scheduler.message.headers import header_items
from nats_scheduler.message.identity import parse_identity
from nats_scheduler.message.stored import StoredMessage
from tests.judge.history import FireKey, FireSeen, StoredRecord, StoreSeen

RECORD = struct.Struct("<IQqH")
CHECKSUM_BYTES = 8
HAS_HEADERS, IS_ERASED, IS_REMOVAL = 1 << 31, 1 << 63, 1 << 62


def fire_seen(message: StoredMessage) -> FireSeen:
    """Read a generated message; of headers with one name the first counts."""
    headers = tuple((name.decode(), value.decode()) for name, value in header_items(message.block))
    values = dict(reversed(headers))
    identity = parse_identity(values.get("Nats-Msg-Id", ""))
    return FireSeen(
        schedule=values.get("Nats-Scheduler", values.get("X-Nats-Scheduler", "")),
        schedule_sequence=identity and identity[1],
        fire_time=identity and identity[2],
        target=message.subject,
        stored_at=message.stored_at,
        sequence=message.sequence,
        body=message.body or b"",
        headers=headers,
        taken=taken_in(values.get("Nats-Msg-Id", "")),
    )


def taken_in(identity: str) -> int:
    """Return the sequence of the message that has the first identity of a fire, from another one; 0 from the first."""
    match = re.match(r"nats-scheduler:[0-9]+/([0-9]+):", identity)
    return int(match[1]) if match else 0


def store_seen(node: str, folder: Path) -> StoreSeen:
    """Read what a server that has ended keeps of a stream in a folder."""
    records: dict[int, StoredRecord] = {}
    erased = set()
    for file in sorted(folder.glob("*.blk"), key=lambda one: int(one.stem)):
        block, place = file.read_bytes(), 0
        while place + RECORD.size <= len(block):
            length, sequence, stored_at, subject_length = RECORD.unpack_from(block, place)
            end = place + (length & ~HAS_HEADERS)
            if sequence & (IS_ERASED | IS_REMOVAL):
                erased.add(sequence & ~(IS_ERASED | IS_REMOVAL))
            else:
                content = block[place + RECORD.size : end - CHECKSUM_BYTES]
                records[sequence] = _record(content, stored_at, subject_length, has_headers=bool(length & HAS_HEADERS))
            assert end > place, f"{file} is no row of records at {place}"
            place = end
    return StoreSeen(node, records, frozenset(erased))


def _record(content: bytes, stored_at: int, subject_length: int, *, has_headers: bool) -> StoredRecord:
    subject, rest = content[:subject_length].decode(), content[subject_length:]
    if not has_headers:
        return StoredRecord(stored_at, subject, None, rest)
    end = 4 + int.from_bytes(rest[:4], "little")
    values = dict(header_items(rest[4:end]))
    identity = parse_identity(values.get(b"Nats-Msg-Id", b"").decode())
    key = identity and FireKey(identity[1], identity[2])
    return StoredRecord(stored_at, subject, key, rest[end:])
