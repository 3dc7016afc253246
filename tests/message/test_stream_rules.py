"""Stream configurations are rejected exactly if a newer server rejects them, and with the same codes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.stream_rules import StreamRules, check_create, check_update, implied
from tests.message.recorded_streams import CREATES, UPDATES, Config, config

_STATUS_OF_400 = {10025, 10031, 10034, 10143, 10173, 10186, 10187, 10198}


def _expected(code: int | None, description: str) -> tuple[int, str, int] | None:
    return None if code is None else (code, description, 400 if code in _STATUS_OF_400 else 500)


def _answer(rejection: Rejection | None) -> tuple[int, str, int] | None:
    return None if rejection is None else (rejection.code, rejection.description, rejection.status)


@pytest.mark.parametrize(("changes", "code", "description"), CREATES)
def test_a_stream_is_refused_at_create_as_on_the_server(changes: Config, code: int | None, description: str) -> None:
    assert _answer(check_create(config(**changes))) == _expected(code, description)


@pytest.mark.parametrize(("old", "new", "code", "description"), UPDATES)
def test_a_stream_is_refused_at_update_as_on_the_server(
    old: Config, new: Config, code: int | None, description: str
) -> None:
    assert _answer(check_update(config(**old), config(**new))) == _expected(code, description)


def test_a_refusal_says_what_was_found_and_what_was_expected() -> None:
    mirror = check_create(config(mirror={"name": "ORIGIN"}, subjects=[]))
    assert str(mirror) == "mirror of 'ORIGIN' is not possible for a stream with schedules (server code 10186)"
    discard = check_create(config(discard="new"))
    assert str(discard) == "discard of 'new' excludes allow_msg_schedules: discard must be 'old' (server code 10052)"


@pytest.mark.clause("stream-json")
@pytest.mark.parametrize(
    ("value", "kind"),
    [("yes", "string"), ("", "string"), (1, "number"), (0, "number"), (1.5, "number"), ([], "array"), ({}, "object")],
)
def test_a_flag_that_is_no_boolean_is_refused_in_the_words_of_the_server(value: Any, kind: str) -> None:
    description = (
        f"invalid JSON: json: cannot unmarshal {kind} into Go struct field "
        "StreamConfigRequest.allow_msg_schedules of type bool"
    )
    wrong = config(allow_msg_schedules=value, discard="new")
    assert _answer(check_create(wrong)) == (10025, description, 400)
    assert _answer(check_update(config(), wrong)) == (10025, description, 400)
    assert check_create(config(allow_msg_schedules=None)) is None, "null leaves the field out"


def test_the_flag_brings_roll_ups_and_purges_along() -> None:
    assert implied(config(deny_purge=True)) == {"allow_rollup_hdrs": True, "deny_purge": False}
    assert implied(config(sealed=True)) == {}
    assert implied(config(allow_msg_schedules=False)) == {}


def test_the_rules_of_a_stream_are_taken_from_its_configuration() -> None:
    rules = StreamRules.from_config(config(allow_msg_ttl=True))
    assert rules == StreamRules(name="T", subjects=("t.>",), allow_msg_ttl=True, schedules_enabled=True)


def test_delete_markers_bring_message_ttls_along() -> None:
    assert StreamRules.from_config(config(subject_delete_marker_ttl=10**9)).allow_msg_ttl


def test_a_stream_without_subjects_owns_its_own_name() -> None:
    assert StreamRules.from_config({"name": "T"}).subjects == ("T",)
    assert StreamRules.from_config({"name": "T", "sources": [{"name": "O"}]}).subjects == ()


def test_a_flag_that_the_server_dropped_does_not_switch_schedules_off() -> None:
    assert StreamRules.from_config({"name": "T"}).schedules_enabled
    assert not StreamRules.from_config({"name": "T"}, schedules_enabled=False).schedules_enabled


_KEYS = [
    "name",
    "subjects",
    "sealed",
    "mirror",
    "sources",
    "discard",
    "pedantic",
    "deny_purge",
    "allow_rollup_hdrs",
    "allow_msg_counter",
    "allow_msg_schedules",
    "allow_msg_ttl",
    "subject_delete_marker_ttl",
]
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
_configs = st.dictionaries(st.sampled_from(_KEYS), _json)


@pytest.mark.slow
@given(_configs, _configs)
def test_no_json_object_is_wrong_enough_to_raise(old: dict[str, Any], new: dict[str, Any]) -> None:
    check_create(new | {"allow_msg_schedules": True})
    check_update(old, new | {"allow_msg_schedules": True})
    implied(new)
    StreamRules.from_config(new)
