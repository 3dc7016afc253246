"""A manifest is read as it was written, and anything else is none."""

from typing import Any

import pytest

from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.snapshots import (
    Manifest,
    Witness,
    digest_of,
    digest_of_all,
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
DOCUMENT = MANIFEST.model_dump(mode="json")


def test_what_is_written_is_read() -> None:
    assert read_manifest(DOCUMENT) == MANIFEST
    assert read_witnesses({"witnesses": [[3, 4, "x"], [1, 2, "y"]]}).witnesses == [
        Witness(3, 4, "x"),
        Witness(1, 2, "y"),
    ]


@pytest.mark.parametrize(
    "change",
    [
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
    ],
    ids=str,
)
def test_anything_else_is_no_manifest(change: dict[str, Any]) -> None:
    assert read_manifest({**DOCUMENT, **change}) is None


@pytest.mark.parametrize("document", [None, {}, {"witnesses": 3}, {"witnesses": [3, [1, 2, 3]]}], ids=str)
def test_anything_else_is_no_witness(document: dict[str, Any] | None) -> None:
    assert read_witnesses(document).witnesses == []


def test_another_message_is_another_witness() -> None:
    message = StoredMessage("s", 1, 2, b"block", b"body")
    others = [message._replace(stored_at=3), message._replace(body=b"Body"), message._replace(subject="S")]
    assert len({witness_of(one) for one in (message, *others)}) == 4
    assert witness_of(message) == witness_of(StoredMessage("s", 1, 2, b"block", b"body"))
    assert digest_of(b"a") != digest_of(b"b")
    assert digest_of_all(["a", "b"]) != digest_of_all(["b", "a"])
    assert snapshot_key("chunk", "S", "emulated", "1f", 3) == "chunk.S.emulated.1f.3"
