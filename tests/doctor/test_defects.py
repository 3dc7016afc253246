"""Which releases have a defect: the versions at its limits. What it takes on a stream is in the scenes."""

import pytest

from nats_scheduler.doctor.defects import refuses_discard_new, version_of


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("2.12.8", (2, 12, 8)),
        ("2.15.0-dev", (2, 15, 0)),
        ("2.14.0-RC.3", (2, 14, 0)),
        ("2.14", None),
        ("main", None),
        ("", None),
    ],
)
def test_a_version_is_three_numbers(text: str, version: tuple[int, int, int] | None) -> None:
    assert version_of(text) == version


@pytest.mark.parametrize(
    ("version", "refuses"),
    [
        ((2, 12, 0), False),
        ((2, 12, 9), False),
        ((2, 12, 10), True),
        ((2, 12, 15), True),
        ((2, 14, 0), False),
        ((2, 14, 1), False),
        ((2, 14, 2), True),
        ((2, 15, 0), True),
        ((3, 0, 0), True),
    ],
)
def test_each_line_refuses_discard_new_from_a_release_of_its_own_on(
    version: tuple[int, int, int], refuses: bool
) -> None:
    assert refuses_discard_new(version) is refuses
