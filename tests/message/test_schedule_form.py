"""A form is written as headers and read from them, and is the one table of the headers that have a field."""

import re
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nats_scheduler.message.dialect import ADR51, DIALECTS, PORTABLE, Dialect
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.policies import POLICY_NAMES, Policies
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.schedule_form import (
    BESIDE_PATTERN,
    FIELDS,
    Edit,
    FormArguments,
    FormDocument,
    ScheduleForm,
    Terms,
    diff,
    differing,
    form_document,
    hidden_fault,
)
from tests.harness.blocks import block_of
from tests.harness.hiding import HIDES, HIDING, TARGET_HIDING_TTL, twice
from tests.harness.seeds import draws
from tests.schedule.reading import read

NAMES = [name.decode() for dialect in DIALECTS for name in dialect.names]
texts = st.one_of(
    st.sampled_from(["orders.due", "5m", "ümläut", "\udcff", "x:y", "", *NAMES, *map(twice, NAMES)]),
    st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]), max_size=8).filter(
        lambda text: not text.startswith(" ")
    ),
)
forms = st.builds(
    ScheduleForm,
    st.sampled_from(["@daily", "@every 1h"]),
    **{field.name: st.none() | texts for field in BESIDE_PATTERN},
    policies=st.dictionaries(st.sampled_from(POLICY_NAMES), texts).map(lambda found: tuple(sorted(found.items()))),
    headers=st.lists(st.tuples(st.sampled_from(["Trace", "A", "Nats-TTL"]), texts), max_size=3).map(tuple),
)


def test_the_fields_are_the_same_everywhere() -> None:
    names = [field.name for field in FIELDS]
    assert list(FormDocument.__annotations__) == names
    assert set(FormArguments.__annotations__) == set(names) - {"pattern", "time_zone", "target"}
    for dialect in DIALECTS:
        assert {field.header(dialect) for field in FIELDS} == {*dialect.names} - {dialect.scheduler, dialect.next}


@settings(max_examples=draws(40))
@given(forms, st.sampled_from(DIALECTS))
def test_what_is_written_is_read_again_or_what_hides_is_named(form: ScheduleForm, dialect: Dialect) -> None:
    block = form.to_block(dialect)
    if isinstance(block, Rejection):
        assert re.search(HIDES, str(block)), block
        return
    read = ScheduleForm.from_block(block, dialect)
    assert replace(read, headers=()) == replace(form, headers=())
    assert sorted(read.headers) == sorted(form.headers)


@pytest.mark.parametrize("name", HIDING)
def test_a_value_that_hides_a_header_in_every_order_is_refused(name: str) -> None:
    fault = HIDING[name].to_block(ADR51)
    assert isinstance(fault, Rejection)
    assert re.search(HIDES, str(fault))
    items = HIDING[name].items(ADR51)
    by = {"ttl": "TTL", "time_zone": "Time-Zone", "note": "X-Note", "subjects": "Target"}[name]
    assert (fault.header, fault.value) == (f"Nats-Schedule-{by}", dict(items)[fault.header.encode()].decode())
    assert fault == hidden_fault(block_of(*items)), "in headers that come in an order, too"


def test_the_subjects_are_last_where_they_would_hide_a_header() -> None:
    form = ScheduleForm("@daily", target=TARGET_HIDING_TTL, source="S.in", ttl="5m", headers=(("Trace", "a"),))
    block = form.to_block(ADR51)
    assert isinstance(block, bytes)
    assert block.endswith(
        f"Trace: a\r\nNats-Schedule-Target: {TARGET_HIDING_TTL}\r\nNats-Schedule-Source: S.in\r\n\r\n".encode()
    )
    assert header_value(block, ADR51.ttl) == b"5m"


def test_a_value_that_is_no_line_is_shown() -> None:
    for target in (" S.out", "S.out\r\nNats-TTL: 1s"):
        fault = ScheduleForm("@daily", target=target).to_block(ADR51)
        assert isinstance(fault, Rejection)
        assert (fault.header, fault.value) == ("Nats-Schedule-Target", target)


def test_a_difference_is_what_is_set_and_what_is_removed() -> None:
    before = ScheduleForm("@daily", target="S.out", ttl="5m", policies=(("X-Limit", "3"), ("X-Note", "x")))
    after = replace(before, ttl=None, source="S.in", policies=(("X-Limit", "4"),), headers=(("A", "1"),), body=b"new")
    assert diff(before, after, PORTABLE) == Edit(
        [(b"X-Nats-Schedule-Source", b"S.in"), (b"X-Nats-Schedule-X-Limit", b"4"), (b"A", b"1")],
        [b"X-Nats-Schedule-TTL", b"X-Nats-Schedule-X-Note"],
        b"new",
    )
    assert diff(before, before, ADR51) == Edit([], [])
    changed = [("source", None, "S.in"), ("ttl", "5m", None), ("X-Limit", "3", "4"), ("X-Note", "x", None)]
    assert differing(before, after) == changed
    assert differing(after, before) == [(name, new, old) for name, old, new in changed], "fields first, then policies"
    assert differing(before, before) == []


@pytest.mark.parametrize("elsewhere", [None, "T.out"])
def test_a_document_has_the_fields_as_they_were_written(elsewhere: str | None) -> None:
    """The target may be in another stream."""
    terms = Terms(PORTABLE, elsewhere or "S.out", "S.in", "5m", True, Policies(target_stream=elsewhere))
    assert form_document(read("0 30 9 * * *", "UTC"), terms) == FormDocument(
        pattern="0 30 9 * * *", time_zone="UTC", target=elsewhere or "S.out", source="S.in", ttl="5m", rollup="sub"
    )
    plain = form_document(read("@daily"), Terms(ADR51, "S.out", None, "", False))
    assert [name for name, value in plain.items() if value is None] == ["time_zone", "source", "ttl", "rollup"]


def test_a_field_is_given_as_a_text_a_number_or_a_switch() -> None:
    fields = {field.name: field for field in FIELDS}
    assert [fields["ttl"].text(given) for given in ("5m", 90, None, "")] == ["5m", "90", None, ""]
    assert [fields["rollup"].text(given) for given in (True, "yes", False, None)] == ["sub", "sub", None, None]


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_edit_names_its_policies_as_its_schedule_does(dialect: Dialect) -> None:
    edit = Edit([(b"A", b"1")], [b"B"], b"body", [("X-Limit", "3"), ("X-Grace", None)])
    limit, grace = dialect.schedule + b"-X-Limit", dialect.schedule + b"-X-Grace"
    assert edit.spelled(dialect) == Edit([(b"A", b"1"), (limit, b"3")], [b"B", grace], b"body")
