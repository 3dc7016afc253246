"""The index finds the places of subjects as a dictionary does, however hashes collide."""

import zlib
from random import Random

import pytest

from nats_scheduler.engine.holding.far import BUCKETS_PER_UNIT, SubjectIndex


class Indexed:
    """An index, and the subjects at its places."""

    def __init__(self) -> None:
        self.subjects: dict[int, bytes] = {}
        self.index = SubjectIndex(self.subjects.__getitem__)

    def add(self, subject: bytes, place: int) -> None:
        self.subjects[place] = subject
        self.index.add(zlib.crc32(subject), place)

    def find(self, subject: bytes) -> int | None:
        return self.index.find(subject, zlib.crc32(subject))

    def pop(self, subject: bytes) -> int | None:
        place = self.index.pop(subject)
        if place is not None:
            del self.subjects[place]
        return place


@pytest.mark.parametrize("seed", range(5))
def test_it_finds_what_a_dictionary_finds(seed: int) -> None:
    random, indexed, known = Random(seed), Indexed(), dict[bytes, int]()
    for step in range(40_000):
        subject = b"orders.%d" % random.randrange(12_000)
        if subject not in known and random.random() < (0.8 if step < 25_000 else 0.2):
            known[subject] = step
            indexed.add(subject, step)
        elif random.random() < 0.3:
            assert indexed.pop(subject) == known.pop(subject, None)
        else:
            assert indexed.find(subject) == known.get(subject)
    assert all(indexed.find(subject) == place for subject, place in known.items())


def test_subjects_with_the_same_hash_are_told_apart() -> None:
    indexed, found = Indexed(), dict[int, bytes]()
    pair: list[bytes] = []
    number = 0
    while not pair:
        subject = b"s.%d" % number
        other = found.setdefault(zlib.crc32(subject), subject)
        pair = [] if other == subject else [other, subject]
        number += 1
    for place, subject in enumerate(pair):
        indexed.add(subject, place)
    assert [indexed.find(subject) for subject in pair] == [0, 1]
    assert (indexed.pop(pair[0]), indexed.find(pair[0]), indexed.find(pair[1])) == (0, None, 1)


def test_a_place_that_looks_like_a_hash_is_none() -> None:
    indexed, wanted = Indexed(), b"wanted"
    indexed.add(b"before", 0)
    indexed.add(b"other", zlib.crc32(wanted))
    assert (indexed.find(wanted), indexed.pop(wanted)) == (None, None)
    indexed.add(wanted, 7)
    assert indexed.find(wanted) == 7
    assert (indexed.pop(wanted), indexed.find(b"other")) == (7, zlib.crc32(wanted))


def test_what_is_not_there_is_not_found_nor_removed() -> None:
    indexed = Indexed()
    assert (indexed.find(b"a"), indexed.pop(b"a")) == (None, None)
    indexed.add(b"a", 7)
    assert (indexed.find(b"b"), indexed.pop(b"b")) == (None, None)


def test_it_is_emptied_in_pieces_and_can_be_used_again() -> None:
    indexed = Indexed()
    for place in range(5 * BUCKETS_PER_UNIT):
        indexed.add(b"s.%d" % place, place)
    assert sum(1 for _ in indexed.index.emptied()) >= 3
    assert indexed.find(b"s.1") is None
    indexed.add(b"s.1", 1)
    assert indexed.find(b"s.1") == 1
