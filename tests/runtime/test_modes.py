"""The mode of a stream is decided in one place, and nothing is served on a sealed stream."""

from itertools import product

import pytest

from nats_scheduler.runtime.modes import Facts, Mode, mode_of


@pytest.mark.parametrize(
    ("echoed", "remembered", "native", "mode"),
    [
        (True, False, True, Mode.NATIVE),
        (True, True, True, Mode.NATIVE),
        (False, True, False, Mode.EMULATED),
        (False, True, True, Mode.DORMANT),
    ],
)
@pytest.mark.parametrize("named", [True, False])
def test_the_flag_decides_whether_or_not_the_settings_name_the_stream(
    echoed: bool, remembered: bool, native: bool, mode: Mode, named: bool
) -> None:
    assert mode_of(Facts(native, echoed, remembered, named, sealed=False)) is mode


@pytest.mark.parametrize("native", [True, False])
def test_without_the_flag_the_settings_decide(native: bool) -> None:
    assert mode_of(Facts(native, False, False, True, sealed=False)) is Mode.PORTABLE
    assert mode_of(Facts(native, False, False, False, sealed=False)) is None


def test_a_sealed_stream_is_served_in_no_mode() -> None:
    every = product([True, False], repeat=4)
    modes = {mode_of(Facts(native, echoed, kept, named, sealed=True)) for native, echoed, kept, named in every}
    assert modes == {None}
