"""Each checker finds the violations of its promise, in histories made by hand, and no others."""

from collections.abc import Sequence
from dataclasses import replace

from tests.judge.checkers import MOST_TAKEOVERS, verdict
from tests.judge.history import (
    SECOND,
    Fault,
    FireKey,
    FireSeen,
    FireSent,
    History,
    IdentityTaken,
    Life,
    Operation,
    ScheduleSeen,
    SourceSeen,
    Verb,
)
from tests.judge.made_by_hand import EVERY_2S, KEPT, at, fire, history
from tests.judge.patterns import Pattern, Policies
from tests.judge.versions import matched


def asked(verb: Verb, seconds: float, *, sequence: int | None = None, known: bool = True) -> list[Operation]:
    """Let a publisher do something that takes a tenth of a second."""
    names = 1 if verb is Verb.DELETE else None
    return [Operation(verb, "s.1", at(seconds), at(seconds + 0.1) if known else None, sequence, names=names)]


def life(begin: float = 0, end: float = 12, instance: str = "i0") -> Life:
    return Life(instance, at(begin), at(end))


def fault(kind: str, begin: float, end: float, instance: str | None = "i0", **more: bool) -> Fault:
    return Fault(kind, instance, at(begin), at(end), **more)


LAST = (("Nats-Scheduler", "s.1"), ("Nats-Schedule-Next", "purge"))
OUTCOME_UNKNOWN = {"completed_at": None, "sequence": None}
ANONYMOUS = {
    due: replace(known, schedule_sequence=None, fire_time=None)
    for due, known in zip(range(4, 13, 2), KEPT.fires, strict=True)
}

CONSUMED = history(terms={"consumed": True, "duplicate_window": 2 * SECOND}, more=[fire(6, 99, late=3)])
IN_AN_OUTAGE = history(lives=[life(0, 5), life(8.5)], fires={6: None, 8: fire(8, 18, late=0.6)})
WITHOUT_A_GUARD = history(
    terms={"guard": False},
    asked=asked(Verb.PURGE, 7.9),
    fires={8: fire(8, 18, late=0.04), 10: None, 12: None},
    remaining=set(),
)
"""The last fire is stored within the window after the removal."""
CANCELLED_IN_A_HANG = history(
    asked=asked(Verb.CANCEL, 7, sequence=17),
    faults=[fault("node-stop", 6.5, 8.5, None)],
    fires={10: None, 12: None},
    remaining=set(),
)
HELD = fire(6, 16, late=3)
IN_PORTABLE_HEADERS = tuple((f"X-{name}", value) for name, value in HELD.headers)
HELD_BY_A_NODE = history(
    terms={"held_elsewhere": 5 * SECOND},
    asked=asked(Verb.PURGE, 7),
    faults=[fault("node-stop", 5.5, 9.5, None)],
    fires={6: replace(HELD, headers=IN_PORTABLE_HEADERS, elsewhere=True), 8: None, 10: None, 12: None},
    remaining=set(),
)
"""The fire of 6 s was on its way to another stream."""
UNGUARDED_UNDER_A_LANDING = history(WITHOUT_A_GUARD, terms={"guard": True, "lands_unguarded": True})
LANDED = history(
    UNGUARDED_UNDER_A_LANDING,
    asked=[Operation(Verb.STORE, "s.2", at(1), at(1.1), 0, pattern=Pattern("at", at(7) // SECOND), target="s.1")],
    schedules=[*KEPT.schedules, ScheduleSeen("s.2", 0, at(1.05), b"")],
    more=[
        replace(fire(7, 17, of=0), schedule="s.2", target="s.1", body=b"", headers=(("Nats-Scheduler", "s.2"), LAST[1]))
    ],
)
"""Another schedule fires onto it; on streams with replicas there is no guard from then on."""
ENDED = history(
    store={"pattern": replace(EVERY_2S, policies=Policies(start=at(5) // SECOND, end=at(11) // SECOND, limit=9))},
    fires={4: None, 10: replace(fire(10, 20), headers=LAST), 12: None},
    remaining=set(),
)
"""Three fires are what its policies leave."""
TAKEN_OVER = history(
    terms={"elected": True},
    lives=[life(0, 5.2), life(instance="i1")],
    fires={6: fire(6, 16, late=0.5)},
    owned_by=["i1"],
)
"""The owner dies at 5.2 s, another one lives all the time, and takes over 1.3 s later."""
SILENT = history(TAKEN_OVER, lives=[life(), life(instance="i1")], faults=[fault("partition", 5.2, 12, silences=True)])
UNABLE = history(
    SILENT, faults=[replace(fault("unable", 5.2, 12), noticed_after=SECOND)], fires={6: fire(6, 16, late=1.1)}
)
"""It sends heartbeats and cannot fire; that is noticed at 6.2 s."""
CUT_OFF = fault("partition", 5.5, 9.5, silences=True)
HELD_BACK = history(HELD_BY_A_NODE, lives=[life(), life(instance="i1")], faults=[CUT_OFF])
"""The fire of 6 s was sent by one that was cut off, and is stored after its schedule was removed."""
ELSEWHERE = replace(fire(6, 16), headers=IN_PORTABLE_HEADERS, elsewhere=True)
AGAIN = replace(ELSEWHERE, sequence=30, stored_at=ELSEWHERE.stored_at + 3 * SECOND)
TWICE_ELSEWHERE = history(
    HELD_BACK,
    terms={"window_elsewhere": 2 * SECOND},
    asked=(),
    fires={**dict.fromkeys(range(8, 13, 2)), 6: ELSEWHERE},
    more=[AGAIN],
)
"""It was also sent by another instance, and the other stream has forgotten that."""
CANNOT_BE_WRITTEN = fault("bucket silent", 5.5, 6.5, None, delays_only=True)
EXPIRED = history(store={"ttl": 5 * SECOND}, fires={8: None, 10: None, 12: None}, remaining=set())
"""The schedule lives until 7 s, on a server that acts on TTLs."""
EXPIRED_IN_AN_OUTAGE = history(
    EXPIRED, terms={"guard": False}, lives=[life(0, 5), life(8.5)], fires={6: fire(6, 16, late=3.4)}
)
"""The sidecar acts on the TTL after an outage: what was due before is made up."""
WITH_TTL = [replace(known, headers=(*known.headers, ("Nats-TTL", "3s"))) for known in KEPT.fires]
FIRES_EXPIRE = history(
    store={"fire_ttl": 3},
    fires=dict(zip(range(4, 13, 2), WITH_TTL, strict=True)),
    remaining_fires={known.sequence for known in WITH_TTL if known.stored_at >= at(9)},
)
SAMPLE = ("X-Sample", "1")
SAMPLED = {
    due: replace(one, body=b"sample", headers=(SAMPLE, *one.headers))
    for due, one in ((due, fire(due, 10 + due)) for due in (6, 8))
}


def repeated_at(seconds: float) -> History:
    """Store a fire that expires a second time."""
    again = replace(WITH_TTL[1], sequence=99, stored_at=at(seconds))
    return history(FIRES_EXPIRE, terms={"duplicate_window": 3 * SECOND}, more=[again])


def samples(since: float, until: float) -> History:
    """Let it sample a source that holds something for some time; the fires of 6 and 8 s have that."""
    sources = [SourceSeen("src.1", at(since), b"sample", (SAMPLE,)), SourceSeen("src.1", at(until), None)]
    return history(store={"source": "src.1"}, sources=sources, fires=SAMPLED)


def uncovered(ttl: int) -> History:
    """Let it be replaced at 6.5 s by a version that expires, and then fire again."""
    twenty = Pattern("every", 20)
    return history(
        asked=[Operation(Verb.STORE, "s.1", at(6.4), at(6.6), 17, None, twenty, "t.1", b"two", ttl=ttl)],
        schedules=[*KEPT.schedules, ScheduleSeen("s.1", 17, at(6.5), b"two")],
    )


def forgotten(kind: str = "server-kill", since: float = 8.03, late: float = 1.3, *, consumed: bool = True) -> History:
    """Store the fire of 8 s as the server ends, and again at the next one."""
    return history(terms={"consumed": consumed}, faults=[fault(kind, since, 9.2, None)], more=[fire(8, 99, late=late)])


FORGED = 5
"""The sequence of the forged message."""
EIGHT = FireKey(1, at(8))
"""The fire that is due at 8 s."""
BY_ANOTHER = Operation(Verb.STORE, "s.1", at(6.2), at(6.3), 17, pattern=Pattern("every", 20), target="t.1", body=b"2")
REPLACED = history(
    asked=[BY_ANOTHER],
    schedules=[*KEPT.schedules, ScheduleSeen("s.1", 17, at(6.25), b"2")],
    fires={6: fire(6, 18, late=0.5), 8: None, 10: None, 12: None},
    remaining={17},
)
"""Its fire of 6 s was due when another version replaced it, and is stored behind that."""
OTHER = replace(fire(8, 18, late=0.2), taken=FORGED)
"""It under another identity."""


def sent(seconds: float, *, taken: int = 0, instance: str = "i0", clock: float | None = None) -> FireSent:
    """Record that an instance sends the fire of 8 s."""
    return FireSent(instance, EIGHT, taken, at(seconds), at(seconds if clock is None else clock))


SENT_OTHER, SENT_OWN = sent(8.1, taken=FORGED), sent(8.15, instance="i1")


def taken(
    free: float, stored: FireSeen, *more: FireSeen, of: FireKey = EIGHT, sent: Sequence[FireSent] = ()
) -> History:
    """Let a forger take the identity of the fire of 8 s, which is free again at an instant."""
    return history(
        terms={"duplicate_window": 7 * SECOND, "window": 3 * SECOND // 2},
        taken=[IdentityTaken(of, FORGED, at(free - 7))],
        fires={8: stored},
        more=more,
        sent=list(sent),
    )


def chosen(
    *more: FireSent,
    free: float = 9.5,
    other: FireSent = SENT_OTHER,
    own: FireSent = SENT_OWN,
    late: float = 1.6,
    stored: FireSeen = OTHER,
    again: int = 0,
    of: FireKey = EIGHT,
) -> History:
    """Store the fire under another identity at 8.2 s; a request with its own one arrives at 9.6 s."""
    second = replace(fire(8, 19, late=late), taken=again)
    return taken(free, stored, second, of=of, sent=[sent(8), other, own, *more])


def behind(*, taken: int) -> History:
    """Let the leader be behind, and the fire of 8 s be late by more than usual, under an identity."""
    return history(terms={"leader_behind": SECOND // 4}, fires={8: replace(fire(8, 18, late=1.2), taken=taken)})


def overdue(late: float) -> History:
    """Store an `@at` that is overdue, and its fire so many seconds later, while the leader may be behind."""
    return history(
        terms={"leader_behind": SECOND // 4},
        store={"pattern": Pattern("at", at(1) // SECOND)},
        fires=dict.fromkeys(range(4, 13, 2)),
        more=[replace(fire(1, 11, late=1 + late), headers=LAST)],
        remaining=set(),
    )


ALLOWED = {
    "all is kept": KEPT,
    "late in a fault": history(faults=[fault("partition", 5, 7)], fires={6: fire(6, 16, late=1.5)}),
    "missed in an outage": IN_AN_OUTAGE,
    "owed when it was replaced": REPLACED,
    "owed, and removed": history(REPLACED, asked=asked(Verb.PURGE, 6.5), fires={6: None}, remaining=set()),
    "removed with unknown outcome": history(asked=asked(Verb.PURGE, 7, known=False), fires={10: None}),
    "stored with unknown outcome": history(store=OUTCOME_UNKNOWN),
    "never stored": history(store=OUTCOME_UNKNOWN, schedules=[], fires=dict.fromkeys(range(4, 13, 2)), remaining=set()),
    "repeated after it was consumed": CONSUMED,
    "without identities": history(fires=ANONYMOUS),
    "in the window without a guard": WITHOUT_A_GUARD,
    "held by a node on its way to another stream": HELD_BY_A_NODE,
    "in the window on what had landed": LANDED,
    "after its cancel, which a node that hangs has not delivered": CANCELLED_IN_A_HANG,
    "ended with its last fire": ENDED,
    "taken over": TAKEN_OVER,
    "taken over from one that is silent": SILENT,
    "taken over from one that is unable": UNABLE,
    "one owner that stays, and one that stands by": history(
        terms={"readers": 2}, owned_by=["i0"], read_by=["i0", "i1"], takeovers=MOST_TAKEOVERS
    ),
    "held up until a later one stood for it": history(
        SILENT, faults=[fault("partition", 5.2, 10.5, silences=True)], fires={6: fire(6, 21, late=4.6)}
    ),
    "held back until its schedule was removed": HELD_BACK,
    "twice beyond the window of another stream": TWICE_ELSEWHERE,
    "held by one in trouble that is heard": history(
        SILENT, faults=[fault("slow", 5.2, 7)], fires={6: fire(6, 16, late=1.4)}
    ),
    "taken over when that could be written": history(
        TAKEN_OVER, faults=[CANNOT_BE_WRITTEN], fires={6: fire(6, 16, late=1.4)}
    ),
    "expired": EXPIRED,
    "expired in an outage": EXPIRED_IN_AN_OUTAGE,
    "fires that expire": FIRES_EXPIRE,
    "repeated after it expired": repeated_at(9.5),
    "a sample": samples(5, 9),
    "a sample that lay there when it was due": samples(5, 8.0005),
    "uncovered": uncovered(SECOND),
    "forgotten by a server that was killed": forgotten(),
    "waited for its identity": taken(8.9, fire(8, 18, late=0.95)),
    "its own identity after another one": chosen(),
    "another identity after its own": taken(
        9.2,
        fire(8, 18, late=1.21),
        replace(fire(8, 19, late=1.6), taken=FORGED),
        sent=[sent(8.05), sent(8.4, taken=FORGED)],
    ),
    "another identity of what was consumed": history(
        chosen(own=sent(9.75, instance="i1"), late=1.8), terms={"consumed": True}
    ),
    "another identity by a slow clock": chosen(other=sent(9, taken=FORGED, clock=8.7)),
    "another identity once it was kept longer": chosen(free=7.6),
    "another identity, after a leader that is behind": behind(taken=FORGED),
    "of a schedule that the leader does not know yet": overdue(0.7),
}

BROKEN = {
    "missing": ("Complete", history(fires={8: None})),
    "missing without identities": ("Complete", history(fires=ANONYMOUS | {8: None})),
    "vanished": ("Complete", history(remaining=set())),
    "missing before its TTL": ("Complete", history(EXPIRED, fires={6: None})),
    "not made up before it was removed": ("Complete", history(EXPIRED_IN_AN_OUTAGE, fires={6: None})),
    "removed before its TTL": ("Complete", history(FIRES_EXPIRE, remaining_fires=set())),
    "doubled": ("Unique", history(more=[fire(8, 99, late=0.002)])),
    "asked for by nobody": ("Unique", history(more=[fire(7, 99)])),
    "of a schedule that nobody stored": ("Unique", history(more=[fire(8, 99, of=77)])),
    "made up although a later one stands for it": ("Unique", history(IN_AN_OUTAGE, more=[fire(6, 17, late=2.7)])),
    "repeated within the window": ("Unique", history(CONSUMED, terms={"duplicate_window": 120 * SECOND})),
    "repeated before it expired": ("Unique", repeated_at(8.9)),
    "beyond its last fire": ("Unique", history(ENDED, more=[fire(12, 22, late=0)])),
    "before its start": ("Unique", history(ENDED, more=[fire(4, 14)])),
    "kept by a server that was killed": ("Unique", forgotten(consumed=False)),
    "acknowledged long before the end": ("Unique", forgotten(since=8.2)),
    "stored by the next server": ("Unique", forgotten(since=7.4)),
    "repeated before the end of the server": ("Unique", forgotten(late=0.01)),
    "forgotten in another fault": ("Unique", forgotten("cut")),
    "another identity that is free soon": ("Unique", chosen(other=sent(8.8, taken=FORGED))),
    "another identity that is free soon, in one instance": ("Unique", chosen(sent(8.8, taken=FORGED, instance="i1"))),
    "another identity after its own was free": ("Unique", chosen(free=7.9)),
    "sent by one that had received it": ("Unique", chosen(own=sent(9.75, instance="i1"), late=1.8)),
    "in transit for too long": ("Unique", chosen(late=1.7)),
    "stored before its identity was free": ("Unique", chosen(free=9.7)),
    "another identity, and its own is taken for another fire": ("Unique", chosen(of=FireKey(1, at(10)))),
    "its own identity twice": ("Unique", chosen(stored=replace(OTHER, taken=0))),
    "another identity twice": ("Unique", chosen(again=FORGED)),
    "early": ("Timely", history(fires={8: fire(8, 18, late=-0.001)})),
    "another body": ("Faithful", history(fires={8: replace(fire(8, 18), body=b"two")})),
    "another next fire": ("Faithful", history(fires={8: fire(8, 18, following=11)})),
    "another header": (
        "Faithful",
        history(FIRES_EXPIRE, fires={8: replace(WITH_TTL[2], headers=(("Nats-Schedule", "x"), *WITH_TTL[2].headers))}),
    ),
    "a sample that had been there": ("Faithful", samples(5, 7)),
    "a sample that came later": ("Faithful", samples(7, 9)),
    "after its replacement": (
        "Latest",
        history(asked=asked(Verb.OVERWRITE, 7, sequence=17), fires={10: None, 12: None}),
    ),
    "due after its replacement": ("Latest", history(REPLACED, more=[fire(8, 19)])),
    "owed and removed before": (
        "Gone",
        history(REPLACED, asked=asked(Verb.PURGE, 6.32), remaining=set()),
    ),
    "owed and not stored": ("Complete", history(REPLACED, fires={6: None})),
    "before it was uncovered": ("Latest", uncovered(3 * SECOND)),
    "after its removal": ("Gone", history(asked=asked(Verb.DELETE, 7), fires={10: None, 12: None}, remaining=set())),
    "long after its removal without a guard": ("Gone", history(WITHOUT_A_GUARD, fires={8: fire(8, 18, late=0.06)})),
    "in the window although nothing had landed": ("Gone", UNGUARDED_UNDER_A_LANDING),
    "held by a node although it is guarded": ("Gone", history(HELD_BY_A_NODE, fires={6: HELD})),
    "after its cancel, although nothing hangs any more": (
        "Gone",
        replace(CANCELLED_IN_A_HANG, faults=[fault("node-stop", 5, 6.9, None)]),
    ),
    "after its cancel, in a fault of an instance": (
        "Gone",
        replace(CANCELLED_IN_A_HANG, faults=[fault("slow", 6.5, 8.5)]),
    ),
    "after its cancel": (
        "Gone",
        history(asked=asked(Verb.CANCEL, 7, sequence=17), fires={10: None, 12: None}, remaining=set()),
    ),
    "still stored after its cancel": (
        "Gone",
        history(asked=asked(Verb.CANCEL, 7, sequence=17), fires={8: None, 10: None, 12: None}),
    ),
    "still stored after its last fire": (
        "Gone",
        history(
            ENDED,
            store={"pattern": replace(EVERY_2S, policies=Policies(limit=1))},
            fires={6: None, 8: None, 10: None},
            more=[replace(fire(4, 14), headers=LAST)],
            remaining={1},
        ),
    ),
    "for a time after its TTL": ("Gone", history(EXPIRED, terms={"guard": False}, more=[fire(8, 18)])),
    "after its TTL on a guarded stream": (
        "Gone",
        history(EXPIRED, fires={6: fire(6, 16, late=1.1)}, faults=[fault("partition", 5, 7)]),
    ),
    "still stored after its TTL": ("Gone", history(EXPIRED, remaining={1})),
    "a fire that outlived its TTL": ("Gone", history(FIRES_EXPIRE, remaining_fires={one.sequence for one in WITH_TTL})),
    "late": ("Live", history(fires={8: fire(8, 18, late=0.9)})),
    "taken over late": ("Live", history(TAKEN_OVER, fires={6: fire(6, 16, late=0.9)})),
    "taken over late from one that is unable": ("Live", history(UNABLE, fires={8: fire(8, 18, late=0.95)})),
    "twice in another stream without a fault": ("Unique", history(TWICE_ELSEWHERE, faults=[])),
    "held back without a fault": ("Live", history(HELD_BACK, faults=[])),
    "taken over late from one that is silent": ("Live", history(SILENT, fires={6: fire(6, 16, late=0.9)})),
    "late although nothing was to be written": (
        "Live",
        history(faults=[replace(CANNOT_BE_WRITTEN, end=at(7.5))], fires={6: fire(6, 16, late=1.4)}),
    ),
    "waited for nothing": ("Live", history(fires={8: fire(8, 18, late=0.95)})),
    "waited for an identity that is free much later": ("Live", taken(9.9, fire(8, 18, late=0.85))),
    "waited longer for its identity": ("Live", taken(8.2, fire(8, 18, late=0.85))),
    "its own identity, although a leader is behind": ("Live", behind(taken=0)),
    "of a schedule that the leader has known for long": ("Live", overdue(0.8)),
    "two owners": ("Owned", history(owned_by=["i0", "i1"])),
    "no owner": ("Owned", history(owned_by=[])),
    "restless owners": ("Owned", history(owned_by=["i0"], takeovers=MOST_TAKEOVERS + 1)),
    "too few that stand by": ("Owned", history(terms={"readers": 2}, owned_by=["i0"], read_by=["i0"])),
    "too many that stand by": ("Owned", history(terms={"readers": 1}, owned_by=["i0"], read_by=["i0", "i1"])),
}
"""What a fire, a schedule or its owners are, which promise that breaks, and a history of it."""


def test_what_the_promises_allow_is_no_violation() -> None:
    found = {name: [str(violation) for violation in verdict(made)] for name, made in ALLOWED.items()}
    assert {name: violations for name, violations in found.items() if violations} == {}


def test_a_broken_promise_is_called_by_its_name() -> None:
    found = {name: verdict(made) for name, (_promise, made) in BROKEN.items()}
    assert {name: {one.promise for one in violations} for name, violations in found.items()} == {
        name: {promise} for name, (promise, _made) in BROKEN.items()
    }
    for violation in (one for violations in found.values() for one in violations):
        assert violation.schedule in ("s.1", "owner", "record", "readers"), violation
        assert violation.evidence, violation


def test_silence_after_the_last_fault_is_neither_complete_nor_live() -> None:
    made = history(faults=[fault("partition", 3, 5)], fires=dict.fromkeys(range(4, 13, 2)))
    assert {violation.promise for violation in verdict(made)} == {"Complete", "Live"}


def test_a_candidate_is_taken_once_and_moves_on_for_another() -> None:
    assert matched({"a": [1, 2], "b": [1], "c": [1, 2]}) == {"b": 1, "a": 2}


def test_a_fire_may_be_early_by_what_a_clock_was_ahead_while_it_was() -> None:
    """Clocks were 4 s ahead from 3.8 s on, and what they showed had come by 9 s."""
    found = {}
    for due, early in ((8, 3.9), (8, 4.1), (6, 2.5), (10, 1)):
        made = history(
            terms={"clock_ahead": 4 * SECOND},
            faults=[Fault("clock", None, at(3.8), at(9), ahead=4 * SECOND)],
            fires={due: fire(due, 10 + due, late=-early)},
        )
        found[due, early] = [violation.promise for violation in verdict(made)]
    assert found == {(8, 3.9): [], (8, 4.1): ["Timely"], (6, 2.5): ["Timely"], (10, 1): ["Timely"]}
