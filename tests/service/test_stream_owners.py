"""Who owns and who stands by each stream, by what the instances say of themselves."""

from typing import Any

from nats_scheduler.engine.ownership.order import order_of
from nats_scheduler.service.schemas import InstanceDocument
from nats_scheduler.service.stream_owners import ownership_of

AT = "2026-03-01T12:00:00Z"


def owns(stream: str, mode: str = "emulated", before: str = "", reason: str = "first") -> dict[str, Any]:
    return {"stream": stream, "mode": mode, "since": AT, "before": before, "reason": reason}


def stands_by(*streams: str) -> list[dict[str, str]]:
    return [{"stream": stream, "mode": "emulated"} for stream in streams]


def instance(
    name: str,
    *owned: dict[str, Any],
    standby_of: tuple[str, ...] = (),
    state: Any = "alive",
    standbys: int | None = 1,
) -> InstanceDocument:
    usual: dict[str, Any] = dict.fromkeys(("since", "last_heartbeat", "serves")) | {"age_nanoseconds": 0, "unable": []}
    usual |= {"stands_by": stands_by(*standby_of), "standbys": standbys}
    document: Any = {"id": name, "state": state, **usual, "owns": list(owned)}
    return document  # type: ignore[no-any-return]


def test_each_stream_has_its_owner_and_standbys_in_order() -> None:
    names = ("a", "b", "c")
    instances = [
        instance("a", owns("JOBS", before="b", reason="gone")),
        instance("b", owns("ORDERS"), standby_of=("JOBS",)),
        instance("c", owns("ORDERS", "native"), standby_of=("JOBS", "ORDERS")),
    ]
    known = {"owner_since": AT, "lost_owner": None, "lacks_standby": False}
    of_jobs = {"owner": "a", "takeover_reason": "gone", "owner_before": "b"}
    first = {"takeover_reason": "first", "owner_before": ""}
    standbys = [name for name in order_of("emulated.JOBS", names) if name != "a"]
    assert ownership_of(instances) == [
        {"stream": "JOBS", "mode": "emulated", **known, **of_jobs, "standbys": standbys},
        {"stream": "ORDERS", "mode": "emulated", **known, **first, "owner": "b", "standbys": ["c"]},
        {"stream": "ORDERS", "mode": "native", **known, **first, "owner": "c", "standbys": [], "lacks_standby": True},
    ]


def test_an_owner_that_is_not_alive_counts_as_none_and_is_named() -> None:
    for state in ("silent", "gone"):
        lost = instance("a", owns("ORDERS"), standby_of=("JOBS",), state=state)
        (jobs, orders) = ownership_of([lost, instance("b", owns("JOBS"), standby_of=("ORDERS",))])
        assert (orders["owner"], orders["owner_since"], orders["takeover_reason"]) == (None, None, None)
        assert (orders["lost_owner"], orders["standbys"]) == ("a", ["b"])
        assert jobs["standbys"] == [], "one that is not alive stands by nothing"


def test_a_stream_that_is_read_and_that_nobody_owns_is_listed() -> None:
    (orders,) = ownership_of([instance("a", standby_of=("ORDERS",))])
    assert (orders["owner"], orders["lost_owner"], orders["standbys"]) == (None, None, ["a"])


def test_a_standby_is_missed_only_if_there_could_be_one() -> None:
    two = [instance("a", owns("ORDERS")), instance("b")]
    assert ownership_of(two)[0]["lacks_standby"]
    unwanted = [
        [instance("a", owns("ORDERS"), standbys=wanted), instance("b", standbys=wanted)] for wanted in (0, None)
    ]
    for fine in (*unwanted, two[:1], [two[0], instance("b", state="silent")]):
        assert not ownership_of(fine)[0]["lacks_standby"]
    assert not ownership_of([two[0], instance("b", standby_of=("ORDERS",))])[0]["lacks_standby"]
