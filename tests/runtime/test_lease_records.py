"""The record of a lease is read as it was written, and what no instance can have written names no holder."""

from typing import Any

import pytest

from nats_scheduler.engine.sharing.leases import NO_HOLDER, UNHELD, Record
from nats_scheduler.engine.sharing.shards import SHARDS
from nats_scheduler.jetstream.registry import UnknownFormatError
from nats_scheduler.runtime.instances import holders_of, record_of, value_of


def test_a_record_is_read_as_it_was_written() -> None:
    holders = tuple(("a", "b", NO_HOLDER)[shard % 3] for shard in range(SHARDS))
    assert record_of(value_of(holders), 7) == Record(holders, 7)
    assert value_of(UNHELD) == {"holders": {}}


@pytest.mark.parametrize(
    "value", [None, {}, {"holders": 5}, {"holders": {"a": 5}}, {"holders": {"a": [SHARDS, -1, True, "1", 1.0]}}]
)
def test_what_no_instance_wrote_names_no_holder(value: Any) -> None:
    assert holders_of(value) == UNHELD
    assert not record_of(value, 7).is_foreign


def test_a_record_of_a_newer_version_is_only_known_to_exist() -> None:
    assert record_of(UnknownFormatError("lease.emulated.S", 2, 1), 7) == Record(UNHELD, 7, is_foreign=True)
