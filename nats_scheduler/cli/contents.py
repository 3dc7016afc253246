"""The body and the headers of a message on a terminal.

Rule: whatever a publisher wrote is printed with its control characters and direction marks escaped, and in a limited
number of lines.
"""

from collections.abc import Sequence

import click

from nats_scheduler.observe.message_contents import ContentDocument, body_lines
from nats_scheduler.observe.texts import printable

MAX_BODY_LINES = 40
"""Lines of a body that are printed: `--json` has more of it."""

INDENT = "  "


def header_texts(content: ContentDocument) -> Sequence[str]:
    """Return the headers of a message, one text each, and how many are left out."""
    omitted = content["headers_omitted"]
    texts = [f"{header['name']}: {header['value']}" for header in content["headers"]]
    return [*texts, f"(and {omitted:,} more headers)"] if omitted else texts


def of_content(content: ContentDocument) -> dict[str, object]:
    """Return a content for a document: an answer of a sidecar has more keys."""
    return {key: value for key, value in content.items() if key in ContentDocument.__annotations__}


def print_body(content: ContentDocument, what: str, beside: str = "") -> None:
    """Print the beginning of a body below a line that says `what` it is; nothing if it is empty.

    `beside` is said in that line, behind the kind and the size.
    """
    found = body_lines(content, MAX_BODY_LINES)
    if found.kind == "empty":
        return
    size = f"{content['body_bytes']:,} bytes"
    click.echo(f"\n{printable(f'{what} ({found.kind}, {size}{beside})')}:\n")
    for line in found.lines:
        click.echo(f"{INDENT}{printable(line)}".rstrip())
    if not found.is_complete:
        rest = "all of it" if content["body_complete"] else "the first 32 KiB"
        click.echo(f"{INDENT}… (--json has {rest})")


def print_content(content: ContentDocument, what: str) -> None:
    """Print the headers of a message, and the beginning of its body."""
    click.echo(f"\n{printable(what)}:\n")
    for text in header_texts(content):
        click.echo(f"{INDENT}{printable(text)}")
    print_body(content, "Its body")
