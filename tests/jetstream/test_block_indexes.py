"""A long stream is purged only where that does not have the server read all of its indexes for one message."""

from nats_scheduler.jetstream.purge import KEPT_SECONDS, LONG_STREAM, SHARE_FOR_EACH, VERY_LONG_STREAM, BlockIndexes

LONG = 10 * LONG_STREAM


def unread(indexes: BlockIndexes, count: int, now: float, sequence: int = LONG) -> int:
    """Return how many of `count` purges are to be avoided."""
    return sum(indexes.are_unread(sequence, now) for _ in range(count))


def test_a_stream_with_few_sequences_is_purged() -> None:
    assert unread(BlockIndexes(), 5, 0.0, LONG_STREAM - 1) == 0


def test_a_long_stream_is_purged_if_that_was_done_a_moment_ago() -> None:
    indexes = BlockIndexes()
    indexes.has_messages(LONG, 1.0)
    assert unread(indexes, 5, 1.0) == 5
    indexes.were_read(2.0)
    assert unread(indexes, 5, 1.9 + KEPT_SECONDS) == 0
    assert unread(indexes, 5, 2.0 + KEPT_SECONDS) == 5


def test_a_long_stream_is_purged_if_so_many_purges_come_that_this_costs_less() -> None:
    indexes = BlockIndexes()
    indexes.has_messages(LONG, 0.0)
    most = LONG // SHARE_FOR_EACH
    assert unread(indexes, most + 100, 0.0) == most
    assert unread(indexes, 100, KEPT_SECONDS) == 100, "they count for a minute"


def test_a_very_long_stream_is_not_purged_however_many_purges_come() -> None:
    indexes = BlockIndexes()
    indexes.has_messages(VERY_LONG_STREAM + 1, 0.0)
    assert unread(indexes, 100_000, 0.0) == 100_000


def test_a_stream_with_few_messages_and_many_sequences_is_looked_at_once_a_minute() -> None:
    indexes = BlockIndexes()
    assert unread(indexes, 5, 0.0) == 5, "nobody knows yet"
    indexes.has_messages(100, 0.0)
    assert unread(indexes, 5, KEPT_SECONDS - 1) == 0
    assert unread(indexes, 5, KEPT_SECONDS) == 1
    indexes.has_messages(LONG, KEPT_SECONDS)
    assert unread(indexes, 5, KEPT_SECONDS) == 5
