"""Subjects that are chosen so that their hashes are equal cost what others cost."""

import zlib
from itertools import islice, product

import pytest

from nats_scheduler.engine.inputs import MessagesRead
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import Desk, schedule
from tests.hostile.effort import at_most

SUBJECTS = 6_000
BATCH = 256
SECONDS = 6.0
"""Process time to read 6,000 schedules and find each of them again: about 0.3 s if their hashes differ."""

LETTERS = 48
"""Letters of a subject; 32 of them make up for what the others change of the hash."""

FAR = format_rfc3339(START + 3_600 * SECOND)


def colliding_subjects(count: int) -> list[str]:
    """Return subjects of one length with one CRC-32.

    A CRC is linear: a letter that is replaced by another one changes the same bits of it, whatever the others are. So
    there are sets of letters whose changes cancel each other.
    """
    plain = bytearray(b"s." + b"a" * LETTERS)
    independent: dict[int, tuple[int, int]] = {}
    cancelling: list[int] = []
    for letter in range(LETTERS):
        changed = plain.copy()
        changed[2 + letter] = ord("b")
        bits, letters = zlib.crc32(changed) ^ zlib.crc32(plain), 1 << letter
        while bits and bits.bit_length() in independent:
            other_bits, other_letters = independent[bits.bit_length()]
            bits, letters = bits ^ other_bits, letters ^ other_letters
        if bits:
            independent[bits.bit_length()] = bits, letters
        else:
            cancelling.append(letters)
    subjects = []
    for chosen in islice(product((0, 1), repeat=len(cancelling)), count):
        letters = 0
        for is_chosen, one in zip(chosen, cancelling, strict=True):
            letters ^= one * is_chosen
        subjects.append("s." + "".join("ab"[letters >> letter & 1] for letter in range(LETTERS)))
    return subjects


@pytest.mark.clause("hostile-subjects")
def test_subjects_with_one_checksum_are_read_and_found_like_others() -> None:
    subjects = colliding_subjects(SUBJECTS)
    assert len(set(subjects)) == SUBJECTS
    assert len({zlib.crc32(subject.encode()) for subject in subjects}) == 1
    desk = Desk()
    with at_most(SECONDS):
        for first in range(0, SUBJECTS, BATCH):
            part = enumerate(subjects[first : first + BATCH], 1 + first)
            desk.step(MessagesRead([schedule(f"@at {FAR}", sequence, subject) for sequence, subject in part]))
        found = [held for subject in subjects if (held := desk.engine.held.peek(subject)) is not None]
    assert [held.subject for held in found] == subjects
