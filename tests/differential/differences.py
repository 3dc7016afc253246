"""Collect what differs between the sides, and report all of it at once.

Its rule: a difference is either an error or one that `docs/reference/compatibility.md` names.
The latter is passed with the clause that it belongs to, and is then not reported.
A clause that no case needed is reported: the document would be wrong.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.differential.sides import REFERENCE

Explained = Callable[[Any, Any], bool]
"""Takes the reference's value and the side's, and returns whether the document explains the difference."""


@dataclass(frozen=True)
class Allowance:
    """A difference that the document names: where it may show, and how it looks."""

    clause: str
    versions: Collection[str]
    explains: Explained


@dataclass
class Differences:
    """The findings of one test."""

    allowances: tuple[Allowance, ...] = ()
    needs_all: bool = True
    """True if each clause has to show; not where the cases are random."""
    found: list[str] = field(default_factory=list)
    compared: int = 0
    _used: set[Allowance] = field(default_factory=set)

    def compare(self, case: str, values: Mapping[str, Any]) -> None:
        """Compare what each version gave with what the reference gave."""
        wanted = values[REFERENCE]
        self.compared += 1
        for version, value in values.items():
            if value != wanted and not self._is_explained(version, wanted, value):
                self.found.append(f"{case}\n    {REFERENCE}: {wanted!r}\n    {version}: {value!r}")

    def note(self, case: str, difference: str) -> None:
        """Add a difference that was found in another way."""
        self.found.append(f"{case}: {difference}")

    def check(self, at_least: int = 1) -> None:
        """Fail with every difference; also where fewer cases than `at_least` were compared, or a clause was idle."""
        idle = [one.clause for one in self.allowances if self.needs_all and one not in self._used]
        assert not self.found, f"{len(self.found)} differences in {self.compared} cases:\n" + "\n".join(self.found)
        assert not idle, f"the document names differences that no case shows: {idle}"
        assert self.compared >= at_least, f"only {self.compared} cases were compared, not {at_least}"

    def _is_explained(self, version: str, wanted: Any, value: Any) -> bool:
        for allowance in self.allowances:
            if version in allowance.versions and allowance.explains(wanted, value):
                self._used.add(allowance)
                return True
        return False
