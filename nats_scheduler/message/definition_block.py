"""Write the headers of a definition: the inverse of reading them.

The rules:

- The block that is written reads to the same definition, on every stream that accepts that definition. What the
  publisher's message holds besides it (other headers, its own TTL and roll-up) is no part of a definition.
- Values are written as they were read, byte for byte: a pattern may end in a blank, and a subject may not be UTF-8.
- For every definition that was read there is such a block (`ScheduleForm.to_block`), although a value may hide a header
  that comes later (`test_a_subject_that_hides_a_header_is_written_behind_it`).

Limit: 64 KiB, the server's limit for a block, is not checked here.
"""

from nats_scheduler.message.definition import Definition
from nats_scheduler.message.policies import with_policies
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.schedule_form import Terms, form_of
from nats_scheduler.message.spread import NO_SUBJECT
from nats_scheduler.schedule.invalid import Invalid
from nats_scheduler.schedule.patterns import parse_pattern


def defined(text: str, terms: Terms, time_zone: str | None = None) -> Definition:
    """Return the definition with a pattern as it is written in its header, and with the time zone of that pattern.

    The policies of the terms, which contain their written form, apply to the pattern, but for a spread, which follows
    from a subject.

    Raises `ValueError` if the pattern or the time zone is invalid; the subjects are not checked.
    """
    pattern = parse_pattern(text, time_zone, terms.policies.syntax)
    if pattern is None or isinstance(pattern, Invalid):
        raise ValueError(f"{text!r} with the time zone {time_zone!r} is no pattern: {pattern or 'it never fires'}")
    return Definition(with_policies(pattern, terms.policies, NO_SUBJECT), terms)


def definition_block(definition: Definition) -> bytes:
    """Return the header block of a message that has this definition and nothing else.

    Raises `ValueError` if no message can have this definition: a value contains a line break, or begins with a blank.
    """
    pattern, terms = definition
    block = form_of(pattern, terms).to_block(terms.dialect)
    if isinstance(block, Rejection):
        raise ValueError(str(block))
    return block
