"""Subjects are valid, literal and covered exactly when the server says so."""

from nats_scheduler.message.restrictions import Restrictions
from nats_scheduler.message.subjects import (
    is_covered,
    is_literal_subject,
    is_valid_subject,
    pattern_or_part,
    request_beginnings,
    subject_matches,
)

VALIDITY = {
    **dict.fromkeys(["orders", "orders.due.1", "orders.größe", "orders.\u00a0", "orders.\udcff"], (True, True)),
    **dict.fromkeys(["orders.*", "orders.>", ">"], (True, False)),
    **dict.fromkeys(["", ".", "orders.", ".orders", "orders..due", "orders.>.due", "orders due"], (False, False)),
    **dict.fromkeys(["orders.due ", "orders\t"], (False, False)),
}


def test_a_subject_is_valid_and_literal_as_on_the_server() -> None:
    assert {one: (is_valid_subject(one), is_literal_subject(one)) for one in VALIDITY} == VALIDITY


def test_a_star_inside_a_token_is_literal() -> None:
    assert all(map(is_literal_subject, ("orders.a*", "orders.*a", "orders.>a", "orders.x>", "**")))


def test_a_subject_is_covered_as_on_the_server() -> None:
    covered = {
        ("orders.due", "orders.due"): True,
        ("orders.due", "orders.*"): True,
        ("orders.due", "*.due"): True,
        ("orders.due", "orders.>"): True,
        ("orders.due", ">"): True,
        ("orders", "orders.>"): False,
        ("orders.due.x", "orders.*"): False,
        ("Orders.due", "orders.>"): False,
        ("orders.due", "orders.du"): False,
        ("orders.a*", "orders.a*"): True,
        ("orders.ab", "orders.a*"): False,
        ("orders.a.b", "orders.*.*"): True,
        ("orders+due", "orders.due"): False,
    }
    assert {pair: is_covered(pair[0], ["elsewhere", pair[1]]) for pair in covered} == covered
    assert not is_covered("orders", [])
    assert subject_matches("orders.*", "orders.*")
    assert subject_matches("orders.*", "orders.>")
    assert subject_matches("orders.>", "orders.>")
    assert not subject_matches("orders.>", "orders.*")
    assert not subject_matches("orders.*", "orders.due")
    assert not subject_matches("orders", "orders.*")


def test_a_filter_token_that_starts_with_a_star_passes_anything() -> None:
    assert subject_matches("orders.due", "*rders.due")
    assert subject_matches("orders.due", "orders.*x")
    assert is_covered("orders.due.now", ["orders.*x.>"])


def test_what_a_connection_reaches_under_a_prefix_is_a_request() -> None:
    restrictions = Restrictions(requests=request_beginnings("fromA.API", "_INBOX_ours", "nats_scheduler"))
    for subject in (
        "fromA.API.STREAM.DELETE.VICTIM",
        "fromA.ACK.S.c.1.1.1.1.0",
        "$JS.API.INFO",
        "$JS.hub.API.INFO",
        "$SYS.REQ.SERVER.PING",
        "$SRV.INFO",
        "nats_scheduler.v1.health.get",
        "nats_scheduler.control.v1.schedules.remove",
        "nats_scheduler.advisory.schedule_changed.S",
        "$KV.nats_scheduler.owner.S",
        "_INBOX_ours.one.r.1",
    ):
        assert restrictions.is_request(subject), subject
        assert restrictions.reads_requests(subject), subject
    for subject in ("fromA.APIS.x", "fromA.orders", "JS.API", "nats_scheduler.canary.fired.one", "$KV.lamps.x", "_I.x"):
        assert not restrictions.is_request(subject), subject
    advisory = "$JS.EVENT.ADVISORY.STREAM.DELETED.S"
    assert (restrictions.is_request(advisory), restrictions.reads_requests(advisory)) == (True, False)
    assert not restrictions.reads_requests(None)


def test_what_is_typed_is_a_part_of_a_subject_unless_it_has_wildcards() -> None:
    assert [pattern_or_part(text) for text in ("orders.*", "orders.>", "orders.1", "", None)] == [
        *(("orders.*", None), ("orders.>", None), (None, "orders.1"), (None, None), (None, None))
    ]
