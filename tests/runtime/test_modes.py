"""The mode of a stream is decided in one place, and whether it needs a new engine in another."""

from itertools import product
from typing import Any

from nats_scheduler.jetstream.streams import Remembered, StreamState
from nats_scheduler.message.capabilities import GUARD_LEVEL, NATIVE_LEVEL, Capabilities
from nats_scheduler.runtime.engine_basis import EngineBasis, basis_of
from nats_scheduler.runtime.modes import Mode, mode_of

CREATED = "2026-01-01T00:00:00Z"
CONFIG: dict[str, Any] = {"name": "ORDERS", "subjects": ["orders.>"], "retention": "limits", "num_replicas": 1}
V2_10, V2_11 = Capabilities("2.10.26", 0, 1 << 20), Capabilities("2.11.11", GUARD_LEVEL, 1 << 20)


def mode(*, echoed: bool, remembered: bool, native: bool, named: bool, sealed: bool = False) -> Mode | None:
    """Return the mode of a stream whose flag the server returns, the registry holds, or the settings replace."""
    config = {"name": "S", "sealed": sealed, **({"allow_msg_schedules": True} if echoed else {})}
    state = StreamState(config, CREATED, 0, 0, Remembered(CREATED, False, None) if remembered else None)
    return mode_of(state, Capabilities(api_level=NATIVE_LEVEL if native else 0), ("S",) if named else ())


def test_the_flag_decides_the_mode_and_without_it_the_settings() -> None:
    expected = {
        (True, False, True): Mode.NATIVE,
        (True, True, True): Mode.NATIVE,
        (False, True, False): Mode.EMULATED,
        (False, True, True): Mode.DORMANT,
    }
    for named in (True, False):
        found = {
            (echoed, remembered, native): mode(echoed=echoed, remembered=remembered, native=native, named=named)
            for echoed, remembered, native in expected
        }
        assert found == expected, f"named: {named}"
    for native in (True, False):
        assert mode(echoed=False, remembered=False, native=native, named=True) is Mode.PORTABLE
        assert mode(echoed=False, remembered=False, native=native, named=False) is None
    for echoed, kept, native, named in product([True, False], repeat=4):
        assert mode(echoed=echoed, remembered=kept, native=native, named=named, sealed=True) is None


def basis(
    mode: Mode = Mode.EMULATED, server: Capabilities = V2_11, created: str = CREATED, **config: Any
) -> EngineBasis:
    """Return what an engine is built for on a stream with this configuration."""
    return basis_of(StreamState.from_info({"config": {**CONFIG, **config}, "created": created}), mode, server)


def test_a_stream_gets_a_new_engine_for_what_cannot_be_passed_to_one() -> None:
    assert basis(Mode.PORTABLE) != basis()
    assert basis(server=V2_10) != basis()
    assert basis(created="2026-01-02T00:00:00Z") != basis()
    notified: list[dict[str, Any]] = [{"description": "new"}, {"max_age": 10**18}, {"max_msgs": 7}, {"max_bytes": 7}]
    assert [changed for changed in notified if basis(**changed) != basis()] == []
    built_for: list[dict[str, Any]] = [
        {"retention": "workqueue"},
        {"retention": "interest"},
        {"num_replicas": 3},
        {"max_consumers": 1},
        {"subjects": ["orders.>", "bills.>"]},
        {"allow_msg_ttl": True},
        {"no_ack": True, "retention": "workqueue"},
    ]
    assert [changed for changed in built_for if basis(**changed) == basis()] == []


def test_a_stream_is_silent_if_fires_are_neither_acknowledged_nor_read() -> None:
    assert not basis(no_ack=True).is_silent
    assert basis(no_ack=True, retention="workqueue").is_silent
    assert not basis(retention="workqueue").is_silent
