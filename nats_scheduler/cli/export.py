"""`nats-scheduler export`: the schedules of streams as files for version control.

Rule: `apply` of what is exported gives the same schedules: headers and bodies, byte for byte. The same schedules give
the same bytes, in the order of their subjects.
What cannot be applied is left out and named: schedules that are rejected, and subjects that are not UTF-8.
Cost: the schedules of a stream are read once. Limit: a file is built in memory.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from nats_scheduler.cli.arguments import check_filter, check_stream
from nats_scheduler.cli.changing import Access, in_store
from nats_scheduler.cli.completion import complete_stream
from nats_scheduler.cli.options import connection_options
from nats_scheduler.cli.output import CommandError, print_warning
from nats_scheduler.control.declared import exported
from nats_scheduler.files.writing import Format, stream_document, written_file
from nats_scheduler.observe.texts import printable
from nats_scheduler.settings.load import ResolvedSettings

FORMATS: tuple[Format, ...] = ("yaml", "json")

Document = dict[str, Any]


@click.command("export")
@click.argument("streams", metavar="STREAM…", nargs=-1, required=True, shell_complete=complete_stream)
@connection_options
@click.option("--filter", "subjects", metavar="SUBJECT", help="Only schedules on subjects that match, as 'orders.>'.")
@click.option("--owner", metavar="NAME", help="Only schedules with this label (X-Owner); the file names the owner.")
@click.option("--format", "form", type=click.Choice(FORMATS), help="Unless --output ends in .json: yaml.")
@click.option(
    "--output",
    metavar="FILE|DIR",
    type=click.Path(),
    help="Write into a file, or into a directory (DIR/), one file for each stream.",
)
def command(
    resolved: ResolvedSettings,
    streams: tuple[str, ...],
    subjects: str | None,
    owner: str | None,
    form: Format | None,
    output: str | None,
) -> None:
    """Write the schedules of streams as files for version control.

    Exit codes: 0 done, 1 a stream does not exist or is not served, or the server refuses or is not reached, 2 wrong use
    or settings.
    """
    for stream in streams:
        check_stream(stream)
    check_filter("--filter", subjects)
    names = list(dict.fromkeys(streams))
    found = in_store(resolved, lambda access: _documents(access, names, subjects or ">", owner))
    _write(found, form, output)


async def _documents(access: Access, streams: Sequence[str], subjects: str, owner: str | None) -> list[Document]:
    return [await _document(access, stream, subjects, owner) for stream in streams]


async def _document(access: Access, stream: str, subjects: str, owner: str | None) -> Document:
    found = await exported(access.store, stream, subjects, owner=owner)
    for one in found.left_out:
        print_warning(printable(f"stream {stream}: {one.subject} is left out: {one.reason}"))
    return stream_document(stream, found.declared, owner=owner, spelling=found.served.dialects[0])


def _write(documents: Sequence[Document], form: Format | None, output: str | None) -> None:
    if output is None:
        click.echo(written_file(documents, form or "yaml"), nl=False)
        return
    path, is_folder = Path(output), output.endswith("/") or Path(output).is_dir()
    form = form or ("json" if path.suffix == ".json" and not is_folder else "yaml")
    files = {path / f"{one['stream']}.{form}": [one] for one in documents} if is_folder else {path: documents}
    try:
        if is_folder:
            path.mkdir(parents=True, exist_ok=True)
        for file, some in files.items():
            file.write_bytes(written_file(some, form).encode())
    except OSError as error:
        raise CommandError(f"{error.filename}: {error.strerror}") from None
    number = sum(len(one["schedules"]) for one in documents)
    click.echo(f"{number:,} schedule{'' if number == 1 else 's'} written to {output}", err=True)
