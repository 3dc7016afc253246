"""Alive is not able: an instance that cannot fire, or does not, owns no stream while another one can."""

import pytest

from nats_scheduler.engine.ownership import ability as ability_module
from nats_scheduler.engine.ownership.ability import (
    FIRST_PASS_NS,
    FIRST_TRIAL_WAIT_NS,
    IDLE_CONFIRMED_AFTER_NS,
    TRIAL_DURATION_NS,
    TRIAL_WAIT_LIMIT_NS,
    Ability,
)
from nats_scheduler.engine.ownership.owners import OwnerChange, Owners, Reason, Record
from nats_scheduler.schedule.instants import SECOND
from tests.engine.owner_builders import KEY, A, B, instance, owned, write

WHY = "may not"


def receives(owners: Owners, other: str, now: int, *, unable: tuple[str, ...] = ()) -> None:
    """Let an instance receive its own heartbeat and that of another one."""
    owners.received(other, {KEY}, now, now, unable=unable)
    owners.received(owners.me, {KEY}, now, now)
    owners.discard_gone(now)


def test_one_that_can_owns_what_one_that_cannot_owned() -> None:
    unable, able = owned(instance(A, B), A), owned(instance(B, A), A)
    assert unable.ability.denied(KEY, WHY, 0)
    assert write(unable, 2) == OwnerChange(B, Reason.UNABLE), "it hands over what it owns"
    receives(able, A, 0, unable=(KEY,))
    assert write(able, 2) == OwnerChange(B, Reason.UNABLE), "and what another one owns is claimed"


def test_where_nobody_can_the_first_in_the_order_keeps_it() -> None:
    for me, other in (A, B), (B, A):
        one = owned(instance(me, other), A)
        one.ability.denied(KEY, WHY, 0)
        receives(one, other, 0, unable=(KEY,))
        assert one.change(KEY, 0) is None


def test_what_one_cannot_on_one_stream_changes_nothing_on_another() -> None:
    one = owned(instance(A, B), A)
    one.ability.denied("emulated.OTHER", WHY, 0)
    receives(one, B, 0, unable=("emulated.OTHER",))
    assert one.change(KEY, 0) is None
    assert {*one.living(KEY)} == {A, B}


def test_after_a_trial_beside_the_owner_it_owns_the_stream_again() -> None:
    one = owned(instance(A, B), B)
    one.ability.denied(KEY, WHY, 0)
    assert not one.fires(KEY, FIRST_TRIAL_WAIT_NS - 1)
    assert one.fires(KEY, FIRST_TRIAL_WAIT_NS)
    assert one.ability.passed(FIRST_TRIAL_WAIT_NS + TRIAL_DURATION_NS - 1) == []
    assert one.ability.passed(FIRST_TRIAL_WAIT_NS + TRIAL_DURATION_NS) == [KEY]
    assert not one.fires(KEY, FIRST_TRIAL_WAIT_NS + TRIAL_DURATION_NS)
    assert dict(one.ability.unable) == {}
    assert one.living(KEY) == [B, A], "the owner hands it over as soon as it receives that"


def test_each_trial_that_fails_makes_the_next_wait_twice_as_long() -> None:
    ability, now, waits = Ability(), 0, []
    for _ in range(10):
        ability.denied(KEY, WHY, now)
        begun = now
        while not ability.is_on_trial(KEY, now):
            now += SECOND
        waits.append(now - begun)
    assert waits == [min(FIRST_TRIAL_WAIT_NS << number, TRIAL_WAIT_LIMIT_NS) for number in range(10)]


def test_who_could_only_for_a_moment_waits_longer_or_for_a_connection() -> None:
    ability = Ability()
    ability.denied(KEY, WHY, 0)
    able_at = FIRST_TRIAL_WAIT_NS + TRIAL_DURATION_NS
    assert ability.passed(able_at) == [KEY]
    ability.denied(KEY, WHY, able_at)
    assert not ability.is_on_trial(KEY, able_at + 2 * FIRST_TRIAL_WAIT_NS - 1)
    assert ability.is_on_trial(KEY, able_at + 2 * FIRST_TRIAL_WAIT_NS)
    ability.reconnected(able_at + 1)
    assert ability.is_on_trial(KEY, able_at + 1)


def test_one_that_is_gone_is_not_noted_as_unable() -> None:
    b = instance("b", "a")
    receives(b, "a", 0, unable=(KEY,))
    b.left("a")
    receives(b, "a", 0)
    assert sorted(b.living(KEY)) == ["a", "b"]
    receives(b, "a", 0, unable=(KEY,))
    assert not b.ability.is_flawless
    b.left("a")
    assert b.ability.is_flawless, "the last one that is unable is gone"


def judged(owners: Owners, unfired: int, fired: int, now: int) -> str | None:
    """Judge the owner by an overdue fire, and by the last one that was read back."""
    receives(owners, A if owners.me == B else B, now)
    return owners.judge_owner(KEY, unfired, fired, now)


def passing_over() -> Owners:
    """Make a standby that has just passed over the idle owner."""
    standby = owned(instance(B, A), A)
    assert judged(standby, 10, 9, 0) is None
    assert judged(standby, 10, 9, IDLE_CONFIRMED_AFTER_NS) == A
    return standby


def test_an_owner_that_surely_fires_nothing_is_passed_over() -> None:
    assert write(passing_over(), 2, IDLE_CONFIRMED_AFTER_NS) == OwnerChange(B, Reason.IDLE)
    fires = owned(instance(B, A), A)
    assert judged(fires, 10, 9, 0) is None
    for turn, fired in enumerate((10, 11), 1):
        assert judged(fires, 10, fired, turn * IDLE_CONFIRMED_AFTER_NS) is None, "of that time or later"


def test_what_an_idle_owner_owns_is_fired_by_who_passes_it_over() -> None:
    standby = passing_over()
    assert not standby.is_owner(KEY)
    assert standby.fires(KEY, IDLE_CONFIRMED_AFTER_NS)
    standby.serves = frozenset()
    assert not standby.fires(KEY, IDLE_CONFIRMED_AFTER_NS)
    assert standby.living(KEY) == [A], "where we do not serve, it keeps what it has"


def test_each_idle_spell_is_passed_over_for_twice_as_long() -> None:
    standby, now = owned(instance(B, A), A), 0
    for length in (FIRST_PASS_NS, 2 * FIRST_PASS_NS, 4 * FIRST_PASS_NS):
        judged(standby, 10, 9, now)
        now += IDLE_CONFIRMED_AFTER_NS
        assert judged(standby, 10, 9, now) == A
        assert judged(standby, 10, 11, now + 1) is None
        assert standby.ability.is_passed_over(KEY, A, now + length - 1)
        now += length
        assert not standby.ability.is_passed_over(KEY, A, now)
        judged(standby, 10, 11, now)


def test_an_idle_owner_is_trusted_again_where_our_fires_fail_too() -> None:
    standby = passing_over()
    standby.ability.trust_again(KEY, IDLE_CONFIRMED_AFTER_NS)
    assert not standby.ability.is_passed_over(KEY, A, IDLE_CONFIRMED_AFTER_NS)
    assert judged(standby, 10, 9, 2 * IDLE_CONFIRMED_AFTER_NS) is None


def fight(*instances: Owners, now: int) -> int:
    """Let instances change the record in turn until none wants to; return how often it was changed."""
    for revision in range(2, 100):
        writer = next((one for one in instances if one.change(KEY, now) is not None), None)
        if writer is None:
            return revision - 2
        change = write(writer, revision, now)
        for one in instances:
            one.recorded(KEY, Record(change.owner, reason=change.reason, revision=revision))
        instances = (*(one for one in instances if one is not writer), writer)
    return 98


def test_two_that_suspect_each_other_come_to_rest_and_both_fire() -> None:
    a, b = owned(instance(A, B), A), owned(instance(B, A), A)
    now = IDLE_CONFIRMED_AFTER_NS
    for time in (0, now):
        suspected = judged(b, 10, 9, time)
    assert suspected == A
    assert write(b, 2, now) == OwnerChange(B, Reason.IDLE)
    owned(a, B, 2)
    for time in (now, 2 * now):
        receives(b, A, time)
        suspected = judged(a, 10, 9, time)
    assert suspected == B
    assert write(a, 3, 2 * now).owner == A
    owned(b, A, 3)
    assert fight(a, b, now=2 * now) <= 1
    assert a.fires(KEY, 2 * now)
    assert b.fires(KEY, 2 * now)
    over = 2 * now + FIRST_PASS_NS
    receives(a, B, over)
    receives(b, A, over)
    fight(a, b, now=over)
    assert (a.fires(KEY, over), b.fires(KEY, over)) == (True, False)


def test_of_many_idle_owners_only_the_last_are_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ability_module, "MAX_IDLE_NOTED", 3)
    ability = Ability()
    for number in range(6):
        ability.seems_idle(f"emulated.S{number}", "a", 0)
    assert ability.seems_idle("emulated.S5", "a", IDLE_CONFIRMED_AFTER_NS), "the last ones stay"
    assert not ability.seems_idle("emulated.S0", "a", IDLE_CONFIRMED_AFTER_NS), "it is suspected anew"
