"""A manifest is read as it was written, and a snapshot waits while its stream is loaded; e2e tests what it has."""

from typing import Any

from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.snapshots import (
    SNAPSHOT_CHECK_INTERVAL_SECONDS,
    Manifest,
    Witness,
    digest_of,
    digest_of_all,
    is_loading,
    read_manifest,
    read_witnesses,
    snapshot_key,
    witness_of,
)

MANIFEST = Manifest(
    basis="basis",
    generation="1f-2a",
    through=31,
    end=42,
    schedules=7,
    witness=Witness(42, 1_000, "d"),
    chunks=3,
    digest="ab",
)


def test_a_manifest_is_read_as_it_was_written_and_anything_else_is_none() -> None:
    document = MANIFEST.model_dump(mode="json")
    assert read_manifest(document) == MANIFEST
    changes: list[dict[str, Any]] = [
        {"basis": 1},
        {"generation": None},
        {"through": 0},
        {"through": "31"},
        {"through": True},
        {"end": 30},
        {"schedules": -1},
        {"witness": [1, 2]},
        {"witness": [1, 2, 3]},
        {"chunks": 0},
        {"chunks": [["a", 10]]},
        {"digest": 3},
    ]
    assert [change for change in changes if read_manifest({**document, **change}) is not None] == []


def test_witnesses_are_read_as_they_were_written_and_anything_else_is_none() -> None:
    written = {"witnesses": [[3, 4, "x"], [1, 2, "y"]]}
    assert read_witnesses(written).witnesses == [Witness(3, 4, "x"), Witness(1, 2, "y")]
    for document in (None, {}, {"witnesses": 3}, {"witnesses": [3, [1, 2, 3]]}):
        assert read_witnesses(document).witnesses == [], document


def test_another_message_is_another_witness() -> None:
    message = StoredMessage("s", 1, 2, b"block", b"body")
    others = [message._replace(stored_at=3), message._replace(body=b"Body"), message._replace(subject="S")]
    assert len({witness_of(one) for one in (message, *others)}) == 4
    assert witness_of(message) == witness_of(StoredMessage("s", 1, 2, b"block", b"body"))
    assert digest_of(b"a") != digest_of(b"b")
    assert digest_of_all(["a", "b"]) != digest_of_all(["b", "a"])
    assert snapshot_key("chunk", "S", "emulated", "1f", 3) == "chunk.S.emulated.1f.3"


def written_after(rate: int, seconds: float) -> float:
    """Return when (s) a snapshot would begin if `rate` messages a second arrive for `seconds`."""
    at = arrived = tail = 0.0
    while tail < 20_000 or is_loading(int(arrived), int(tail)):
        at += SNAPSHOT_CHECK_INTERVAL_SECONDS
        before, tail = tail, rate * min(at, seconds)
        arrived = tail - before
        assert at < 86_400, "it waits for ever"
    return at


def test_the_first_snapshot_of_a_load_has_all_of_it() -> None:
    for count in (100_000, 1_000_000, 10_000_000):
        for rate in (20_000, 40_000, 60_000):
            seconds = count / rate
            after = written_after(rate, seconds)
            assert seconds <= after <= seconds + 2 * SNAPSHOT_CHECK_INTERVAL_SECONDS, (count, rate)


def test_what_never_ends_delays_it_by_a_quarter_of_an_hour_at_most() -> None:
    for rate in (1, 100, 2_000, 10_000, 100_000, 1_000_000):
        enough = 20_000 / rate
        assert written_after(rate, 1e9) <= max(enough, 15 * 60) + SNAPSHOT_CHECK_INTERVAL_SECONDS, rate
