"""A file that never ends is refused wherever an operator names a file."""

from pathlib import Path

import click
import pytest

from nats_scheduler.cli.arguments import file_content
from nats_scheduler.settings.json_files import StreamFileError, read_bounded, read_stream_file
from nats_scheduler.settings.load import load_settings
from nats_scheduler.settings.problems import SettingsError

ENDLESS = Path("/dev/zero")


def test_a_file_that_never_ends_is_refused() -> None:
    with pytest.raises(OSError, match="more than 100 bytes"):
        read_bounded(ENDLESS, 100)
    with pytest.raises(click.UsageError, match="/dev/zero has more than 67,108,864 bytes"):
        file_content(ENDLESS)
    with pytest.raises(StreamFileError, match="/dev/zero: more than 1048576 bytes"):
        read_stream_file(ENDLESS)


def test_a_file_of_the_limit_is_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * 100)
    assert read_bounded(file, 100) == b"x" * 100


def test_a_context_that_never_ends_is_refused(tmp_path: Path) -> None:
    contexts = tmp_path / "nats" / "context"
    contexts.mkdir(parents=True)
    (contexts / "endless.json").symlink_to(ENDLESS)
    with pytest.raises(SettingsError, match="more than 1048576 bytes"):
        load_settings({"context": "endless"}, {"XDG_CONFIG_HOME": str(tmp_path)}, None)
