"""The capabilities of a server follow from its API level, and for some patch releases from its version."""

import pytest

from nats_scheduler.message.capabilities import Capabilities, capabilities_of


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ("2.9.25", 0),
        ("2.10.29", 0),
        ("2.11", 1),
        ("2.11.0", 1),
        ("2.12.8", 2),
        ("2.13.1", 2),
        ("2.14.0-RC.3", 4),
        ("2.15.0-dev", 4),
        ("main", 0),
        ("", 0),
    ],
)
def test_a_version_says_the_least_that_its_servers_can_do(version: str, level: int) -> None:
    assert capabilities_of(version) == Capabilities(version, level)


@pytest.mark.parametrize(
    ("version", "is_too_old"),
    [("2.9.25", True), ("2.10", False), ("2.10.0", False), ("2.15.0-dev", False), ("main", False), ("", False)],
)
def test_a_server_without_metadata_of_streams_is_too_old(version: str, is_too_old: bool) -> None:
    assert Capabilities(version).is_too_old is is_too_old


@pytest.mark.parametrize(
    ("version", "refuses"),
    [
        ("2.12.0", False),
        ("2.12.9", False),
        ("2.12.10", True),
        ("2.12.15-RC.1", True),
        ("2.14", False),
        ("2.14.0", False),
        ("2.14.1", False),
        ("2.14.2", True),
        ("2.15.0-dev", True),
        ("3.0.0", True),
        ("main", False),
        ("", False),
    ],
)
def test_each_line_refuses_discard_new_from_a_release_of_its_own_on(version: str, refuses: bool) -> None:
    assert Capabilities(version).refuses_discard_new is refuses


@pytest.mark.parametrize("version", ["2.12.8", "2.14.6", "2.15.0", "2.15.1", "2.14", "main", ""])
def test_other_releases_remove_only_what_is_copied(version: str) -> None:
    assert not Capabilities(version).empties_queues
