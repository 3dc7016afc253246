"""The mode of a stream is decided in one place, and nothing is served on a sealed stream."""

from itertools import product

import pytest

from nats_scheduler.jetstream.streams import Remembered, StreamState
from nats_scheduler.message.capabilities import NATIVE_LEVEL, Capabilities
from nats_scheduler.runtime.modes import Mode, mode_of

CREATED = "2026-01-01T00:00:00Z"


def mode(*, native: bool, echoed: bool, remembered: bool, named: bool, sealed: bool = False) -> Mode | None:
    """Return the mode of a stream whose flag the server returns, the registry holds, or the settings replace."""
    config = {"name": "S", "sealed": sealed, **({"allow_msg_schedules": True} if echoed else {})}
    state = StreamState(config, CREATED, 0, 0, Remembered(CREATED, False, None) if remembered else None)
    return mode_of(state, Capabilities(api_level=NATIVE_LEVEL if native else 0), ("S",) if named else ())


@pytest.mark.parametrize(
    ("echoed", "remembered", "native", "expected"),
    [
        (True, False, True, Mode.NATIVE),
        (True, True, True, Mode.NATIVE),
        (False, True, False, Mode.EMULATED),
        (False, True, True, Mode.DORMANT),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_the_flag_decides_whether_or_not_the_settings_name_the_stream(
    echoed: bool, remembered: bool, native: bool, expected: Mode, named: bool
) -> None:
    assert mode(native=native, echoed=echoed, remembered=remembered, named=named) is expected


@pytest.mark.parametrize("native", [True, False])
def test_without_the_flag_the_settings_decide(native: bool) -> None:
    assert mode(native=native, echoed=False, remembered=False, named=True) is Mode.PORTABLE
    assert mode(native=native, echoed=False, remembered=False, named=False) is None


def test_a_sealed_stream_is_served_in_no_mode() -> None:
    for native, echoed, kept, named in product([True, False], repeat=4):
        assert mode(native=native, echoed=echoed, remembered=kept, named=named, sealed=True) is None
