"""Stream configurations are rejected exactly if a newer server rejects them, and with the same codes."""

from typing import Any

import pytest

from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.stream_rules import (
    METADATA_DEBOUNCE,
    StreamRules,
    check_create,
    check_update,
    has_metadata,
    implied,
)
from nats_scheduler.schedule.instants import SECOND

Config = dict[str, Any]
Answer = tuple[int, str] | None
"""The code and the description of a refusal."""

# What nats-server 2.15.1 answered, recorded; each configuration is changed by `config` from one with the flag on.
CREATES: dict[Answer, list[Config]] = {
    None: [
        *({}, {"allow_rollup_hdrs": True}, {"deny_purge": True}, {"retention": "workqueue"}),
        *({"retention": "interest", "deny_delete": True}, {"pedantic": True, "allow_rollup_hdrs": True}),
        *({"allow_msg_schedules": False, "allow_msg_counter": True}, {"subject_delete_marker_ttl": 10**10}),
    ],
    (10052, "stream configuration for create can not be sealed"): [
        *({"sealed": True}, {"sealed": True, "discard": "new"}),
    ],
    (10052, "roll-ups require the purge permission"): [{"deny_purge": True, "allow_rollup_hdrs": True}],
    (10052, "counter stream cannot use message schedules"): [{"allow_msg_counter": True}],
    (10052, "message scheduling cannot use discard new"): [
        *({"discard": "new"}, {"discard": "new", "pedantic": True}, {"sources": [{"name": "O"}], "discard": "new"}),
        {"subjects": [], "mirror": {"name": "O"}, "discard": "new"},
    ],
    (10052, "message scheduling cannot be set if roll-ups are disabled"): [{"pedantic": True}],
    (10186, "stream mirrors can not also schedule messages"): [{"subjects": [], "mirror": {"name": "O"}}],
    (10187, "stream source can not also schedule messages"): [{"subjects": [], "sources": [{"name": "O"}]}],
    (10052, "counter stream cannot use discard new"): [{"allow_msg_counter": True, "discard": "new"}],
    (10052, "counter stream cannot use message TTLs"): [{"allow_msg_counter": True, "allow_msg_ttl": True}],
    (10034, "stream mirrors can not contain subjects"): [{"mirror": {"name": "O"}}],
    (10031, "stream mirrors can not also contain other sources"): [
        {"subjects": [], "mirror": {"name": "O"}, "sources": [{"name": "O"}]},
    ],
    (10143, "stream mirrors can not have first sequence configured"): [
        {"subjects": [], "mirror": {"name": "O"}, "first_seq": 7},
    ],
    (10198, "stream mirrors can not also use atomic publishing"): [
        {"subjects": [], "mirror": {"name": "O"}, "allow_atomic": True},
    ],
    (10052, "subject delete marker TTL must be at least 1 second"): [{"subject_delete_marker_ttl": 10**8}],
    (10052, "subject delete marker cannot be set if message TTLs are disabled"): [
        {"subject_delete_marker_ttl": 10**10, "pedantic": True},
    ],
    (10052, "subject delete marker cannot be set if roll-ups are disabled"): [
        {"subject_delete_marker_ttl": 10**10, "allow_msg_ttl": True, "pedantic": True},
    ],
}
UPDATES: dict[Answer, list[tuple[Config, Config]]] = {
    None: [
        *(({"allow_msg_schedules": False}, {}), ({}, {"allow_rollup_hdrs": False}), ({}, {"deny_purge": True})),
        *(({}, {"sealed": True}), ({"allow_msg_schedules": False, "subjects": [], "sources": [{"name": "O"}]}, {})),
        ({"allow_msg_ttl": True}, {"allow_msg_ttl": True}),
        ({"subject_delete_marker_ttl": 10**10}, {"allow_msg_ttl": True}),
    ],
    (10052, "message schedules can not be disabled"): [({}, {"allow_msg_schedules": False})],
    (10052, "message scheduling cannot use discard new"): [
        *(({}, {"discard": "new"}), ({"allow_msg_schedules": False, "discard": "new"}, {"discard": "new"})),
        ({"allow_msg_ttl": True}, {"discard": "new"}),
    ],
    (10187, "stream source can not also schedule messages"): [({}, {"sources": [{"name": "O"}]})],
    (10052, "stream configuration update can not cancel deny purge"): [
        ({"allow_msg_schedules": False, "deny_purge": True}, {"deny_purge": True}),
        ({"allow_msg_schedules": False, "deny_purge": True}, {"deny_purge": False}),
    ],
    (10052, "counter stream cannot use message schedules"): [
        ({"allow_msg_schedules": False, "allow_msg_counter": True}, {"allow_msg_counter": True}),
        ({}, {"allow_msg_counter": True}),
    ],
    (10052, "stream configuration update can not change message counter setting"): [
        ({"allow_msg_schedules": False, "allow_msg_counter": True}, {}),
    ],
    (10052, "message TTL status can not be disabled"): [
        *(({"allow_msg_ttl": True}, {}), ({"allow_msg_ttl": True}, {"allow_msg_schedules": False})),
    ],
}


def config(**changes: Any) -> Config:
    """Write a stream configuration with the flag on, changed by `changes`."""
    return {"name": "T", "subjects": ["t.>"], "allow_msg_schedules": True} | changes


_STATUS_OF_400 = {10025, 10031, 10034, 10143, 10173, 10186, 10187, 10198}


def _answer(rejection: Rejection | None) -> tuple[int, str, int] | None:
    return None if rejection is None else (rejection.code, rejection.description, rejection.status)


def expected(answer: Answer) -> tuple[int, str, int] | None:
    return None if answer is None else (*answer, 400 if answer[0] in _STATUS_OF_400 else 500)


def test_a_stream_is_refused_at_create_and_at_update_as_on_the_server() -> None:
    for answer, created in CREATES.items():
        for changes in created:
            assert _answer(check_create(config(**changes))) == expected(answer), changes
    for answer, updated in UPDATES.items():
        for old, new in updated:
            assert _answer(check_update(config(**old), config(**new))) == expected(answer), (old, new)


def test_a_refusal_says_what_was_found_and_what_was_expected() -> None:
    changes: list[tuple[Config, str]] = [
        ({"discard": "new"}, "discard of 'new' excludes allow_msg_schedules: discard must be 'old'"),
        ({"sources": [{"name": "A"}, "B"]}, "sources of 'A, B' is not possible for a stream with schedules"),
        ({"deny_purge": True, "allow_rollup_hdrs": True}, "deny_purge of 'true' excludes allow_rollup_hdrs"),
        (
            {"pedantic": True},
            "allow_rollup_hdrs of 'false' is not what schedules need",
        ),
        ({"mirror": {"name": "O"}, "subjects": []}, "mirror of 'O' is not possible for a stream with schedules"),
        ({"allow_msg_schedules": [1]}, "allow_msg_schedules of '[1]' is neither true nor false"),
    ]
    for changed, sentence in changes:
        rejection = check_create(config(**changed))
        assert rejection is not None, sentence
        assert str(rejection).startswith(sentence)
        assert str(rejection).endswith(f" (server code {rejection.code})")
    denied = config(allow_msg_schedules=False, deny_purge=True)
    for changed in (denied | {"allow_msg_schedules": True}, config()):
        assert "deny_purge of 'true' cannot be switched off" in str(check_update(denied, changed))


@pytest.mark.clause("stream-json")
def test_a_flag_that_is_no_boolean_is_refused_as_on_the_server() -> None:
    kinds: dict[str, list[object]] = {"string": ["yes"], "number": [1, 1.5], "array": [[]], "object": [{}]}
    for kind, value in ((kind, value) for kind, values in kinds.items() for value in values):
        description = (
            f"invalid JSON: json: cannot unmarshal {kind} into Go struct field "
            "StreamConfigRequest.allow_msg_schedules of type bool"
        )
        wrong = config(allow_msg_schedules=value, discard="new")
        assert _answer(check_create(wrong)) == (10025, description, 400)
        assert _answer(check_update(config(), wrong)) == (10025, description, 400)
    assert check_create(config(allow_msg_schedules=None)) is None, "null leaves the field out"


def test_the_rules_of_a_stream_are_taken_from_its_configuration() -> None:
    rules = StreamRules.from_config(config(allow_msg_ttl=True))
    assert rules == StreamRules(
        name="T",
        subjects=("t.>",),
        allow_msg_ttl=True,
        schedules_enabled=True,
        rolls_up_by_purge=True,
        keeps_acknowledged=True,
    )
    assert StreamRules.from_config(config(subject_delete_marker_ttl=10**9)).allow_msg_ttl
    assert StreamRules.from_config({"name": "T"}).schedules_enabled
    assert not StreamRules.from_config({"name": "T"}, schedules_enabled=False).schedules_enabled
    for changes, says_so in (
        ({}, False),
        ({"allow_rollup_hdrs": True}, True),
        ({"subject_transform": {"src": "a"}}, True),
    ):
        assert StreamRules.from_config(config(**changes)).rolls_up_by_purge is not says_so, changes
    for retention, keeps in (("limits", True), ("interest", False), ("workqueue", False)):
        assert StreamRules.from_config(config(retention=retention)).keeps_acknowledged is keeps
    assert StreamRules.from_config(config(metadata={METADATA_DEBOUNCE: "true"})).debounces
    assert implied(config(deny_purge=True)) == {"allow_rollup_hdrs": True, "deny_purge": False}
    assert implied(config(sealed=True)) == {}
    assert implied(config(allow_msg_schedules=False)) == {}
    assert check_create(config(first_seq=7, allow_atomic=True)) is None, "only a mirror cannot have them"


def test_the_limits_of_a_stream_are_taken_from_its_configuration() -> None:
    moved = {"src": "a", "dest": "b"}
    for limits, max_age, evicts, moves in (
        ({}, 0, False, False),
        ({"max_age": 7, "max_msgs": -1, "max_bytes": -1, "subject_transform": None}, 7, False, False),
        ({"max_age": -1, "max_msgs": 1, "max_bytes": 0, "subject_transform": moved}, 0, True, True),
        ({"max_age": "7s", "max_msgs": 0, "max_bytes": 1, "subject_transform": {}}, 0, True, False),
    ):
        rules = StreamRules.from_config(config() | limits)
        assert (rules.max_age, rules.evicts, rules.moves_subjects) == (max_age, evicts, moves), limits
    for most, keeps_one in ((-1, False), (0, False), (1, True), (2, False), ("1", False)):
        assert StreamRules.from_config(config(max_msgs_per_subject=most)).keeps_one is keeps_one, most
    for window, age, seconds in ((None, None, 120), (7, None, 7), (7, 3600, 7), (None, 60, 60), (0, 3600, 120)):
        given = {"duplicate_window": window, "max_age": age}
        changes = {key: value * SECOND for key, value in given.items() if value is not None}
        assert StreamRules.from_config(config(**changes)).duplicate_window == seconds * SECOND, changes


def test_a_stream_without_subjects_owns_its_own_name() -> None:
    assert StreamRules.from_config({"name": "T"}).subjects == ("T",)
    for others in ({"sources": [{"name": "O"}]}, {"mirror": {"name": "O"}}):
        assert StreamRules.from_config({"name": "T", **others}).subjects == (), others


def test_a_flag_in_the_metadata_is_on_as_people_write_it() -> None:
    values = ("true", "True", "1", "yes", "on", "0", "")
    assert [one for one in values if not has_metadata({"metadata": {"flag": one}}, "flag")] == ["0", ""]
    assert not has_metadata({"metadata": {"other": "true"}}, "flag")
    assert not has_metadata({}, "flag")
