"""Pages by subject: each note on exactly one page, whatever changes between two slices."""

from collections.abc import Iterable
from random import Random

import pytest

from nats_scheduler.engine.views.pages import LOOKED_AT_PER_UNIT, MAX_UNSORTED, Sliced, by_subject


class Note(str):
    """A note that is its subject."""

    __slots__ = ()

    @property
    def subject(self) -> str:
        return str(self)


def notes(subjects: Iterable[str]) -> dict[str, Note]:
    return {subject: Note(subject) for subject in subjects}


def every(_note: Note) -> bool:
    return True


def pages(noted: dict[str, Note], limit: int) -> list[list[Note]]:
    """Return all pages, one after the other."""
    found, after = list[list[Note]](), ""
    while True:
        page = Sliced(by_subject([noted], every, limit, after)).finish()
        found.append(page.messages)
        if page.is_last:
            return found
        after = page.messages[-1]


@pytest.mark.parametrize("limit", [1, 7, 100, MAX_UNSORTED])
def test_pages_are_in_the_order_of_the_subjects_and_each_note_is_on_one(limit: int) -> None:
    subjects = [f"s.{number}" for number in Random(limit).sample(range(10_000), 3 * LOOKED_AT_PER_UNIT + 5)]
    subjects = subjects[: 10 * limit + 3]
    noted = notes(subjects)
    found = pages(noted, limit)
    assert [one for page in found for one in page] == sorted(noted)
    assert all(len(page) == limit for page in found[:-1])


def test_what_is_not_wanted_is_on_no_page() -> None:
    noted = notes(f"s.{number}" for number in range(10))
    page = Sliced(by_subject([noted], lambda one: one in ("s.3", "s.5", "s.7"), 2, "s.3")).finish()
    assert (page.messages, page.is_last) == (["s.5", "s.7"], True)


def test_notes_that_come_and_go_between_two_slices_do_not_disturb() -> None:
    noted = notes(f"s.{number:04}" for number in range(8 * LOOKED_AT_PER_UNIT))
    work = Sliced(by_subject([noted], every, 10, "s.0002"))
    assert work.advance(), "it takes more than one slice"
    del noted["s.0005"]
    noted["s.0003x"] = Note("s.0003x")
    while work.advance():
        pass
    assert work.result.messages == [f"s.{number:04}" for number in (3, 4, 6, 7, 8, 9, 10, 11, 12)]
    assert not work.result.is_last
