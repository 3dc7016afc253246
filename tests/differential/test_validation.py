"""A header combination gets the same answer from every side: stored, armed as a schedule, or refused with a code.

A native server says so when it is published to; beside an older one the sidecar reports it when it reads the message.
The plain function behind `nats-scheduler check` gives the same answer without any server.
Native servers append `Nats-Rollup: sub` to what they take for a schedule: that distinguishes a stored schedule from
another stored message.
"""

import asyncio
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nats_scheduler.cli.main import main
from nats_scheduler.engine.events import ScheduleAccepted, ScheduleRejected
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.reading import read_message
from nats_scheduler.message.stream_rules import FLAG, StreamRules
from tests.conftest import SharedServer
from tests.differential.differences import Allowance, Differences
from tests.differential.header_cases import (
    ERASING,
    KINDS,
    PATTERN,
    SINGLES,
    TARGET,
    Case,
    Kind,
    fixed_cases,
)
from tests.differential.sides import REFERENCE, ComparedSide, fresh_name, on_each
from tests.harness.account import CLOCK, account_on
from tests.harness.log_lines import capture_logs
from tests.harness.servers import EMULATED_VERSIONS, V2_10, V2_15
from tests.harness.waiting import eventually

Outcome = tuple[Any, ...]
STORED: Outcome = ("stored",)
SCHEDULE: Outcome = ("schedule",)
ORDINARY: Outcome = ("ordinary",)
"""The plain function's outcome for a message that means nothing to the scheduler; servers just store it."""

FROM_THE_OLDER_SERVER = {10111, 10165, 10166}
"""The refusals by servers up to 2.11 themselves: a roll-up that is none, and from 2.11 on a TTL."""

OF_EACH_SERVER = {10060, 10071, *FROM_THE_OLDER_SERVER}
"""The refusals that have nothing to do with schedules: of what a publisher expected, and those."""

UNANSWERED = {"error": {"err_code": 10111, "description": "rollup value invalid"}}
"""A server of 2.10 drops a message with such a roll-up and answers nothing: there it is not said, to save the wait."""

AT_ONCE = 100
"""The number of cases said at once: the preparation of all must not pause the sidecars of this process."""

STREAMS: dict[Kind, dict[str, Any]] = {
    "full": {"allow_msg_ttl": True},
    "bare": {},
    "moved": {"allow_msg_ttl": True, "subject_transform": {"src": "{n}.in.*", "dest": "{n}.out.{{wildcard(1)}}"}},
    "off": {"allow_msg_schedules": False},
}

pytestmark = [
    pytest.mark.clause("check-order", "header-grammar", "pattern-at", "pattern-every", "pattern-cron", "pattern-alias"),
    pytest.mark.clause("time-zone", "ttl-header", "rollup-header", "target", "source", "next-header", "storage-ttl"),
    pytest.mark.clause("rejected-schedules"),
]


def config_of(kind: Kind, name: str) -> dict[str, Any]:
    """Return the configuration of a kind of stream; it owns `<name>.>` and, for a pattern of its own, `more.*`."""
    config: dict[str, Any] = {"subjects": [f"{name}.>", f"{name}-more.*"], **STREAMS[kind]}
    if transform := config.get("subject_transform"):
        config["subject_transform"] = {key: text.replace("{n}", name) for key, text in transform.items()}
    return config


class Streams:
    """One stream of each kind, of the same names on every side, and the cases that are said to them."""

    def __init__(self, sides: list[ComparedSide], kinds: tuple[Kind, ...]) -> None:
        self.sides = sides
        self.names: dict[Kind, str] = {kind: fresh_name() for kind in kinds}

    async def create(self) -> None:
        """Create them all; those that carry schedules are served when this returns."""
        await asyncio.gather(*(self._create(side, kind) for side in self.sides for kind in self.names))

    async def _create(self, side: ComparedSide, kind: Kind) -> None:
        config = config_of(kind, self.names[kind])
        if kind == "off":
            await side.account.create(self.names[kind], **config)
        else:
            await side.create(self.names[kind], **config)

    def subject(self, case: Case, number: int) -> str:
        """Return the subject that a case is published to."""
        return f"{self.names[case.kind]}.{'in.' if case.kind == 'moved' else ''}c{number}"

    def stored_subject(self, case: Case, number: int) -> str:
        """Return the subject that a case is stored on."""
        return self.subject(case, number).replace(".in.", ".out.")

    def block(self, case: Case, number: int) -> bytes:
        """Return the header block of a case."""
        return case.block(self.names[case.kind], self.stored_subject(case, number))

    async def outcomes(self, side: ComparedSide, cases: list[Case]) -> list[Outcome]:
        """Say all cases to one side and return what became of each."""
        numbered = list(enumerate(cases))
        answers: list[dict[str, Any]] = []
        for begin in range(0, len(numbered), AT_ONCE):
            part = numbered[begin : begin + AT_ONCE]
            said = (self._say(side, self.subject(case, number), self.block(case, number)) for number, case in part)
            answers += await asyncio.gather(*said)
        told = await self.told(side) if side.sidecar is not None else {}
        return list(
            await asyncio.gather(
                *(
                    self._outcome(side, case, self.block(case, number), answer, told)
                    for number, (case, answer) in enumerate(zip(cases, answers, strict=True))
                )
            )
        )

    async def _say(self, side: ComparedSide, subject: str, block: bytes) -> dict[str, Any]:
        if side.version == V2_10 and (header_value(block, b"Nats-Rollup") or b"sub").lower() not in (b"sub", b"all"):
            return UNANSWERED
        return await side.say(subject, block)

    async def told(self, side: ComparedSide) -> dict[tuple[str, int], Outcome]:
        """Return what the sidecar has reported of each message, once it has read all of them."""
        assert side.sidecar is not None
        found: dict[tuple[str, int], Outcome] = {}
        for kind, name in self.names.items():
            if kind == "off":
                continue
            last = await side.say(f"{name}.last", self.block(Case(kind, (PATTERN, TARGET)), 0))
            await read_up_to(side, name, last["seq"])
            for event in side.sidecar.of(name, ScheduleAccepted):
                found[name, event.sequence] = SCHEDULE
            for event in side.sidecar.of(name, ScheduleRejected):
                found[name, event.sequence] = ("refused", event.rejection.code, event.rejection.description)
        return found

    async def _outcome(
        self, side: ComparedSide, case: Case, block: bytes, answer: dict[str, Any], told: dict[tuple[str, int], Outcome]
    ) -> Outcome:
        if "error" in answer:
            error = answer["error"]
            return ("refused", error["err_code"], error["description"].rstrip("0123456789"))  # "… last sequence: 7"
        name, sequence = self.names[case.kind], answer["seq"]
        if side.sidecar is not None:
            outcome = told.get((name, sequence), STORED)
        else:
            stored = await side.account.api.message(name, seq=sequence)
            # What is gone at once was a schedule that was due, or its own time to live ran over.
            told_apart = stored.block != block if stored else bool(header_value(block, ADR51.schedule))
            outcome = SCHEDULE if told_apart else STORED
        return STORED if outcome == SCHEDULE and header_value(block, b"Nats-Rollup") else outcome

    def read(self, case: Case, number: int) -> Outcome:
        """Return what the plain function says of a case."""
        config = {"name": self.names[case.kind], **config_of(case.kind, self.names[case.kind])}
        rules = StreamRules.from_config(config, schedules_enabled=case.kind != "off")
        block = self.block(case, number)
        reading = read_message(block, self.stored_subject(case, number), CLOCK.now(), rules, (ADR51,))
        if reading is None:
            return ORDINARY
        if reading.rejection is not None:
            return ("refused", reading.rejection.code, reading.rejection.description)
        return STORED if reading.definition is None or header_value(block, b"Nats-Rollup") else SCHEDULE


async def read_up_to(side: ComparedSide, stream: str, sequence: int) -> None:
    """Wait until the sidecar has accepted the schedule with a sequence, and so has read everything before it."""
    running = side.sidecar
    assert running is not None
    await eventually(
        lambda: any(event.sequence == sequence for event in running.of(stream, ScheduleAccepted)),
        describe=f"the sidecar has read all of {stream}",
    )


def refused_by_the_older_server(wanted: Outcome, given: Outcome) -> bool:
    """Both refuse; the older server did so before the sidecar could see the message, with a code of its own."""
    return wanted[0] == "refused" and given[0] == "refused" and given[1] in FROM_THE_OLDER_SERVER


OLDER_SERVER = Allowance("check-order", EMULATED_VERSIONS, refused_by_the_older_server)
INERT_TTL = Allowance(
    "storage-ttl",
    (V2_10,),
    lambda wanted, given: wanted[0] == "refused" and wanted[1] in (10165, 10166) and given == STORED,
)
"""A server of 2.10 stores any `Nats-TTL`; the sidecar judges that of a schedule or a cancel, not of any message."""


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Keep thousands of lines about rejected schedules out of the report of a failure."""
    with capture_logs():
        yield


async def compare(sides: list[ComparedSide], cases: list[Case], differences: Differences) -> None:
    """Say the cases to all sides and to the plain function, and note what differs."""
    streams = Streams(sides, KINDS)
    await streams.create()
    by_version = await on_each(sides, lambda side: streams.outcomes(side, cases))
    for number, case in enumerate(cases):
        values = {version: outcomes[number] for version, outcomes in by_version.items()}
        text = f"{case.kind}: {' | '.join(map(repr, case.lines))}"
        if case.kind == "off":
            # A native server refuses schedules there (10188, 10212); an older one stores them unread.
            odd = {version: values.pop(version) for version in EMULATED_VERSIONS if version in values}
            if any(value != STORED and value[1] not in OF_EACH_SERVER for value in odd.values()):
                differences.note(text, f"not stored: {odd}")
        differences.compare(text, values)
        read = streams.read(case, number)
        wanted = values[REFERENCE]
        if (STORED if read == ORDINARY else read) != wanted and not is_for_the_server(wanted, read):
            differences.note(f"{text}\n    {REFERENCE}: {wanted!r}", f"the plain function says {read!r}")
    for side in sides:
        if side.sidecar is not None:  # which has no business with the headers of a stream without schedules
            assert side.sidecar.of(streams.names["off"], ScheduleRejected) == []
            assert side.sidecar.of(streams.names["off"], ScheduleAccepted) == []


def is_for_the_server(wanted: Outcome, read: Outcome) -> bool:
    """Return whether a refusal has nothing to do with schedules: every server makes those checks by itself."""
    if wanted[0] != "refused":
        return False
    return wanted[1] in (10060, 10071, 10111) or (read == ORDINARY and wanted[1] in (10165, 10166))


async def test_each_fault_and_each_pair_of_faults_is_answered_alike(sides: list[ComparedSide]) -> None:
    differences = Differences((OLDER_SERVER, INERT_TTL))
    await compare(sides, fixed_cases(KINDS), differences)
    differences.check(at_least=3000)


async def test_a_roll_up_of_everything_is_answered_alike(sides: list[ComparedSide]) -> None:
    differences = Differences()
    for lines in ERASING:
        streams = Streams(sides, ("full",))
        await streams.create()
        by_version = await on_each(sides, partial(streams.outcomes, cases=[Case("full", lines)]))
        differences.compare(" | ".join(lines), by_version)
    differences.check(at_least=len(ERASING))


async def test_check_answers_what_a_native_server_answers(shared_server: SharedServer, tmp_path: Path) -> None:
    server = await shared_server(V2_15)
    cases = [Case("full", lines) for lines in SINGLES if _can_be_typed(lines)]
    async with account_on(server.url) as account:
        native = Streams([ComparedSide(V2_15, server, account, None)], ("full",))
        await native.create()
        answers = await native.outcomes(native.sides[0], cases)
    name = native.names["full"]
    stream = tmp_path / "stream.json"
    stream.write_text(json.dumps({"name": name, FLAG: True, **config_of("full", name)}))
    differences = Differences()
    for number, (case, answer) in enumerate(zip(cases, answers, strict=True)):
        subject = native.subject(case, number)
        headers = native.block(case, number).decode().split("\r\n")[1:-2]
        said = _checked(["--subject", subject, "--stream-config", str(stream)], headers)
        # The command stands in the place of an older version.
        differences.compare(" | ".join(case.lines), {REFERENCE: answer, V2_10: said})
    differences.check(at_least=150)


def _can_be_typed(lines: tuple[str, ...]) -> bool:
    """Return whether a command line keeps the values: it drops blanks around them, as `nats pub -H` does."""
    values = [line.partition(": ")[2] for line in lines]
    known = all(value == value.strip() for value in values)
    return known and not any(line.startswith(("Nats-Rollup", "Nats-TTL")) for line in lines)


def _checked(options: list[str], headers: list[str]) -> Outcome:
    """Run `nats-scheduler check` and return its answer."""
    given = [word for header in headers for word in ("-H", header)]
    shown = CliRunner().invoke(main, ["check", *given, *options, "--json"], catch_exceptions=False)
    answer = json.loads(shown.stdout)
    if error := answer.get("error"):
        return ("refused", error["err_code"], error["description"])
    return SCHEDULE if answer["message"] == "schedule" else STORED
