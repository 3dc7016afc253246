"""The subject of an advisory names the schedule wherever a subject can, and its message id is that of its content."""

import json
import re

from nats_scheduler.message.advisory_messages import (
    MAX_ADVISORY_SUBJECT_BYTES,
    advisory_message,
    advisory_subject,
    rejection_fields,
)
from nats_scheduler.message.headers import MSG_ID, header_value
from nats_scheduler.message.rejection import MAX_KEPT_CHARS, Rejection

GENERAL = "nats_scheduler.advisory.fire_late.S"


def test_the_subject_ends_with_that_of_the_schedule() -> None:
    message = advisory_message("fire_late", "S", {"schedule": "S.größe.s", "subject": "S.out"})
    assert message.subject == f"{GENERAL}.S.größe.s"
    assert json.loads(message.body) == {
        "type": "io.nats_scheduler.advisory.v1.fire_late",
        "stream": "S",
        "schedule": "S.größe.s",
        "subject": "S.out",
    }
    assert advisory_message("header_misnamed", "S", {"subject": "S.m"}).subject.endswith(".header_misnamed.S.S.m")
    assert advisory_message("cannot_serve", "S", {"reason": "x"}).subject.endswith(".cannot_serve.S")


def test_a_subject_that_cannot_be_a_part_of_another_is_left_out() -> None:
    for schedule in ("", "S.*", "S.>", "S..s", "S. s", "S.\udcff", "S." + "x" * 1_024):
        message = advisory_message("fire_late", "S", {"schedule": schedule})
        assert message.subject == GENERAL, schedule
        assert json.loads(message.body)["schedule"] == schedule
    longest = "x" * (MAX_ADVISORY_SUBJECT_BYTES - len(GENERAL) - 1)
    assert len(advisory_subject("fire_late", "S", longest)) == MAX_ADVISORY_SUBJECT_BYTES
    assert advisory_subject("fire_late", "S", f"{longest}x") == GENERAL


def test_an_advisory_shows_as_much_of_a_rejection_as_is_kept() -> None:
    given = {"code": 10190, "description": "invalid", "header": "H", "value": "v" * 999, "reason": "r" * 999}
    cut = {"value": "v" * MAX_KEPT_CHARS, "reason": "r" * MAX_KEPT_CHARS}
    assert rejection_fields(Rejection(**given)) == {**given, **cut}  # type: ignore[arg-type]


def test_the_same_content_has_the_same_message_id() -> None:
    one, again, other = (advisory_message("fire_late", "S", {"seq": seq}) for seq in (1, 1, 2))
    ids = [header_value(message.block, MSG_ID) for message in (one, again, other)]
    assert ids[0] == ids[1] != ids[2]
    assert re.fullmatch(rb"fire_late:[0-9a-f]{32}", ids[0] or b"")
