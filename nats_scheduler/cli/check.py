"""`nats-scheduler check`: would the server accept this pattern, or a message with these headers?

Rule: the answer comes from the code that reads stored messages, never from a second implementation of the rules.
Without a stream configuration the stream is taken to accept every subject and to allow TTLs, so that only errors of
the message itself are found.
Cost: no server, no client. Limit: what depends on stored messages (the target of a cancel, sequences) is not known
here. Values of headers are used as they are: the templates of `nats pub` are not filled in.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import click

from nats_scheduler.cli.output import (
    EXIT_FAILED,
    EXIT_WRONG_USE,
    CommandError,
    json_option,
    print_json,
    print_warning,
    rejection_error,
)
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.findings import Finding
from nats_scheduler.message.headers import EMPTY_BLOCK, with_header
from nats_scheduler.message.reading import Reading, read_message
from nats_scheduler.message.schedule_findings import findings_about
from nats_scheduler.message.spread import NO_SUBJECT
from nats_scheduler.message.stream_rules import FLAG, StreamRules, check_create
from nats_scheduler.observe.documents import CheckedDocument, SkippedDocument, finding_document
from nats_scheduler.observe.explanations import (
    ANY_STREAM_RULES,
    is_valid,
    pattern_reading,
    reading_document,
)
from nats_scheduler.observe.texts import printable
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.schedule.patterns import Syntax
from nats_scheduler.settings.json_files import read_bounded


def no_schedule_error(hint: str) -> CommandError:
    """Return the error for a message that is not a schedule for the server; `hint` may say why."""
    return CommandError(f"not a schedule: the message would be stored like any other\n{hint}".rstrip())


@click.command("check")
@click.argument("pattern", required=False)
@click.option("--tz", metavar="ZONE", help="Time zone of the pattern (Nats-Schedule-Time-Zone).")
@click.option("--syntax", type=click.Choice([one.value for one in Syntax]), help="How PATTERN is written (X-Syntax).")
@click.option("-H", "--header", "headers", metavar="NAME:VALUE", multiple=True, help="A header, as for `nats pub`.")
@click.option("--subject", metavar="SUBJECT", help="Subject that the message is published to.")
@click.option("--stream-config", metavar="FILE", help="Stream, as for `nats stream add --config`.")
@json_option
def command(
    pattern: str | None,
    tz: str | None,
    headers: tuple[str, ...],
    subject: str | None,
    stream_config: str | None,
    syntax: str | None,
    as_json: bool,
) -> None:
    """Check a pattern or headers as the server would; needs no server.

    Give a PATTERN, or headers with -H.
    Exit codes: 0 valid, 1 invalid, 2 wrong use.
    """
    if (pattern is None) == (not headers):
        raise click.UsageError("give either a PATTERN or headers with -H")
    if headers and tz is not None:
        raise click.UsageError("--tz goes with a PATTERN; among headers it is -H 'Nats-Schedule-Time-Zone: …'")
    if headers and syntax is not None:
        raise click.UsageError("--syntax goes with a PATTERN; among headers it is -H 'X-Nats-Schedule-X-Syntax: …'")
    if pattern is not None and (subject or stream_config):
        raise click.UsageError("--subject and --stream-config go with headers")
    now, block, rules = SystemClock().now(), EMPTY_BLOCK, ANY_STREAM_RULES
    if pattern is not None:
        one_line(pattern + (tz or ""))
        reading, hint = pattern_reading(pattern, tz, now, syntax), f"the pattern was {pattern!r}"
    else:
        rules = _rules(stream_config, as_json)
        for header in headers:
            block = with_header(block, *split_header(header))
        reading, hint = read_message(block, subject or NO_SUBJECT, now, rules, DIALECTS), ""
    findings = findings_about(block, None if reading is None else reading.defined, rules, now)
    _answer(reading, hint or "\n".join(finding.sentence for finding in findings), as_json, findings)


def _answer(reading: Reading | None, hint: str, as_json: bool, findings: Sequence[Finding] = ()) -> None:
    """Print what a message means; end the command with 1 if it is neither a schedule nor a cancel.

    Of a paused schedule that is what it would be if it was resumed.
    """
    rejection = reading.fault if reading else None
    valid = is_valid(reading)
    if as_json:
        print_json({"valid": valid, **_document(reading), "findings": [*map(finding_document, findings)]})
        raise click.exceptions.Exit(0 if valid else EXIT_FAILED)
    if rejection is not None:
        raise rejection_error(rejection)
    if reading is None:
        raise no_schedule_error(hint)
    for finding in findings:
        print_warning(printable(finding.sentence))
    click.echo("\n".join(f"{name}: {printable(str(value))}" for name, value in _lines(_document(reading))))


def _document(reading: Reading | None) -> CheckedDocument:
    return reading_document(reading, SystemClock().now())


def _lines(document: CheckedDocument) -> list[tuple[str, object]]:
    """Return what has a value, for people; the next fire in the time zone of the schedule."""
    schedule, generated = document["schedule"], document["generated"]
    lines: list[tuple[str, object]] = [("message", document["message"])]
    if schedule is not None:
        lines += [(name, value) for name, value in schedule.items() if name not in ("next_fire", "policies", "skipped")]
        lines += schedule["policies"].items()
        lines += [("skipped", _skipped_text(one)) for one in schedule["skipped"]]
        next_fire = schedule["next_fire"]
        lines.append(("next_fire", next_fire and next_fire["local"]))
        lines.append(("clock_change", next_fire and next_fire["clock_change"]))
    if generated is not None:
        lines += generated.items()
    lines.append(("cancels", document["cancels"]))
    return [(name, value) for name, value in lines if value]


def _skipped_text(skipped: SkippedDocument) -> str:
    first, last = skipped["first"], skipped["last"]
    times = first if first == last else f"{first} to {last}"
    return f"{times}, since the clock goes from {skipped['clock_from']} to {skipped['clock_to']}"


def _rules(path: str | None, as_json: bool) -> StreamRules:
    """Return the rules of the stream in a file; end the command with 1 if the server would refuse it."""
    if path is None:
        return ANY_STREAM_RULES
    try:
        config = json.loads(read_bounded(Path(path)))
    except (OSError, ValueError, RecursionError) as error:
        expected = "expected a JSON file as for `nats stream add --config`"
        raise CommandError(f"--stream-config of {path!r}: {expected} ({error})", EXIT_WRONG_USE) from None
    if not isinstance(config, dict):
        raise CommandError(f"--stream-config of {path!r}: expected a JSON object", EXIT_WRONG_USE)
    refused = check_create(config)
    if refused is not None:
        _answer(Reading(rejection=refused), "", as_json)
    return StreamRules.from_config(config, schedules_enabled=config.get(FLAG) is True)


def split_header(header: str) -> tuple[bytes, bytes]:
    """Split `Name: value` as `nats pub -H` does: at the first colon, blanks around both parts dropped."""
    name, colon, value = header.partition(":")
    if not colon or not name.strip():
        raise click.UsageError(f"-H of {header!r}: expected 'Name: value'")
    return one_line(name.strip()), one_line(value.strip())


def one_line(text: str) -> bytes:
    """Return text as bytes of a header; refuse a line break, which would begin another header."""
    if "\r" in text or "\n" in text:
        raise click.UsageError(f"{text!r}: expected text without line breaks")
    return text.encode("utf-8", "surrogateescape")
