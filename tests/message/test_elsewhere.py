"""Targets in other streams: which are accepted, and why others are rejected."""

from dataclasses import replace

from nats_scheduler.message.definition import Definition, definition_block, read_definition
from nats_scheduler.message.dialect import ADR51, PORTABLE, Dialect
from nats_scheduler.message.policies import X_TARGET
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.stream_rules import Restrictions, StreamRules
from nats_scheduler.observe.explanations import ANY_STREAM_RULES
from nats_scheduler.schedule.instants import SECOND
from tests.harness.blocks import block_of

RULES = StreamRules("CRON", ("cron.>",), restrictions=Restrictions(targets=(), elsewhere=("jobs.>", "*.mail")))
SUBJECT = "cron.s1"
STORED_AT = 1_790_000_000 * SECOND
EVERY = ("X-Nats-Schedule", "@every 1h")


def read(*headers: tuple[str, str], rules: StreamRules = RULES, dialect: Dialect = PORTABLE) -> Definition | Rejection:
    found = read_definition(block_of(*headers), SUBJECT, rules, dialect, STORED_AT)
    assert found is not None
    return found


def rejected(*headers: tuple[str, str], rules: StreamRules = RULES, dialect: Dialect = PORTABLE) -> Rejection:
    found = read(*headers, rules=rules, dialect=dialect)
    assert isinstance(found, Rejection)
    return found


def elsewhere(target: str) -> tuple[str, str]:
    return X_TARGET.decode(), target


def test_a_target_in_another_stream_is_the_target() -> None:
    found = read(EVERY, elsewhere("jobs.run"), ("X-Nats-Schedule-Source", "cron.sample"))
    assert isinstance(found, Definition)
    assert (found.terms.target, found.terms.policies.target_elsewhere) == ("jobs.run", "jobs.run")
    assert found.terms.source == "cron.sample"
    assert read_definition(definition_block(found), SUBJECT, RULES, PORTABLE, STORED_AT) == found
    assert isinstance(read(EVERY, elsewhere("jobs.run"), rules=ANY_STREAM_RULES), Definition)
    fault = rejected(EVERY, elsewhere("jobs.run"), ("X-Nats-Schedule-X-Overlap", "skip"))
    assert (fault.code, fault.header) == (0, X_TARGET.decode())
    assert fault.reason.startswith("is beside X-Overlap")


def test_the_rules_of_the_other_stream_are_not_those_of_ours() -> None:
    found = read(EVERY, elsewhere("jobs.run"), ("X-Nats-Schedule-TTL", "5m"), ("X-Nats-Schedule-Rollup", "sub"))
    assert isinstance(found, Definition)
    assert (found.terms.ttl, found.terms.rollup) == ("5m", True)
    assert rejected(EVERY, elsewhere("jobs.run"), ("X-Nats-Schedule-TTL", "soon")).code == 10191
    here = replace(RULES, restrictions=Restrictions())
    target = ("X-Nats-Schedule-Target", "cron.due")
    assert rejected(EVERY, target, ("X-Nats-Schedule-TTL", "5m"), rules=here).code == 10166, "our stream has no TTLs"


def test_a_target_in_another_stream_that_cannot_be_is_rejected() -> None:
    not_allowed = "is not among the targets in other streams that the operator allows on this stream: jobs.>, *.mail"
    for target, reason in {
        "": "is empty: expected a subject of another stream",
        "jobs.*": "is not a literal subject",
        "jobs..run": "is not a literal subject",
        "cron.due": "is a subject of stream 'CRON' itself: name it in X-Nats-Schedule-Target",
        SUBJECT: "is a subject of stream 'CRON' itself",
        "$JS.API.STREAM.DELETE.CRON": "is one of the server's own subjects",
        "mail.out": not_allowed,
        "$KV.mail": not_allowed,
    }.items():
        fault = rejected(EVERY, elsewhere(target))
        found = fault.code, fault.description, fault.header, fault.value
        assert found == (0, "schedule policy is invalid", X_TARGET.decode(), target)
        assert fault.reason.startswith(reason)


def test_an_operator_who_means_subjects_of_buckets_has_to_say_so() -> None:
    def allowing(*allowed: str) -> StreamRules:
        return replace(RULES, restrictions=Restrictions(elsewhere=allowed))

    bucket = elsewhere("$KV.lamps.kitchen")
    for silent in (">", "*.lamps.>"):
        assert isinstance(read(EVERY, bucket, rules=allowing(silent)), Rejection)
        assert isinstance(read(EVERY, elsewhere("a.lamps.kitchen"), rules=allowing(silent)), Definition)
    assert isinstance(read(EVERY, bucket, rules=allowing("$KV.lamps.>")), Definition)
    assert "that the operator allows on this stream: none" in rejected(EVERY, bucket, rules=allowing()).reason


def test_a_schedule_has_one_target() -> None:
    rules = replace(RULES, restrictions=Restrictions())
    fault = rejected(EVERY, elsewhere("jobs.run"), ("X-Nats-Schedule-Target", "cron.due"), rules=rules)
    assert (fault.code, fault.header) == (0, X_TARGET.decode())
    assert fault.reason == "is beside X-Nats-Schedule-Target: a schedule has one target"
    first = rejected(EVERY, elsewhere("jobs.run"), ("X-Nats-Schedule-Target", "other"), rules=rules)
    assert first.code == 10190, "what a server checks comes first"


def test_beside_the_headers_of_adr_51_it_is_refused_as_a_server_refuses_it() -> None:
    rules = replace(RULES, restrictions=Restrictions())
    headers = ("Nats-Schedule", "@every 1h"), ("Nats-Schedule-X-Target", "jobs.run")
    fault = rejected(*headers, rules=rules, dialect=ADR51)
    assert (fault.code, fault.header) == (10190, "Nats-Schedule-Target")
    assert "is missing or empty" in fault.reason
    assert "read beside X-Nats-Schedule only, as X-Nats-Schedule-X-Target" in fault.reason
    fault = rejected(*headers, ("Nats-Schedule-Target", "cron.due"), rules=rules, dialect=ADR51)
    assert (fault.code, fault.header) == (0, "Nats-Schedule-X-Target")
    assert "read beside X-Nats-Schedule only" in fault.reason


def test_a_schedule_that_a_server_fires_may_have_it_beside_its_target() -> None:
    rules = replace(RULES, restrictions=Restrictions(), has_policies=False)
    headers = ("Nats-Schedule", "@every 1h"), ("Nats-Schedule-Target", "cron.due"), ("Nats-Schedule-X-Target", "jobs.x")
    found = read(*headers, rules=rules, dialect=ADR51)
    assert isinstance(found, Definition)
    assert found.terms.target == "cron.due"
