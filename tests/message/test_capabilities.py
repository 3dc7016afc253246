"""The capabilities of a server follow from its API level, and for some patch releases from its version."""

from nats_scheduler.message.capabilities import Capabilities, capabilities, capabilities_of
from tests.schedule.reading import read


def test_a_version_says_what_its_servers_can_do_and_refuse() -> None:
    levels = {"2.9.25": 0, "2.10.29": 0, "2.11": 1, "2.11.0": 1, "2.12.8": 2, "2.13.1": 2, "2.14.0-RC.3": 4}
    for version, level in {**levels, "2.15.0-dev": 4, "main": 0, "": 0}.items():
        assert capabilities_of(version) == Capabilities(version, level)
    versions = ("2.9.25", "2.10", "2.10.0", "2.15.0-dev", "main", "")
    assert [version for version in versions if Capabilities(version).is_too_old] == ["2.9.25"]
    refusing = ["2.12.10", "2.12.15-RC.1", "2.14.2", "2.15.0-dev", "3.0.0"]
    others = ["2.12.0", "2.12.9", "2.14", "2.14.0", "2.14.1", "main", ""]
    assert [version for version in (*refusing, *others) if Capabilities(version).refuses_discard_new] == refusing
    emptying_none = ("2.12.8", "2.14.6", "2.15.0", "2.15.1", "2.14", "main", "")
    assert [version for version in emptying_none if Capabilities(version).empties_queues] == []


def test_the_api_level_says_what_a_server_does_with_a_schedule() -> None:
    patterns = [read("@at 2030-01-01T00:00:00Z"), read("@every 1h")]
    for level, guards, native, at_only, reads in (
        (0, False, False, False, [True, False]),
        (1, True, False, False, [True, False]),
        (2, True, True, True, [True, False]),
        (3, True, True, True, [True, False]),
        (4, True, True, False, [True, True]),
        (5, True, True, False, [True, True]),
    ):
        found = capabilities({"api": {"level": level}}, "2.99.0", 1_024)
        assert found == Capabilities("2.99.0", level, 1_024)
        assert (found.has_guard, found.has_message_ttl) == (guards, guards)
        assert (found.schedules_natively, found.finds_last, found.schedules_at_only) == (native, native, at_only)
        assert [found.reads(pattern) for pattern in patterns] == reads
        assert found.schedules_all is reads[1]
        assert found.upgraded == Capabilities("2.99.0", level if native else 4, 1_024)
    answers: list[dict[str, object]] = [{}, {"api": None}, {"api": {}}]
    assert [capabilities(answer, "2.10.29", 1).api_level for answer in answers] == [0, 0, 0]
