"""The folder of a sidecar: the same settings find it again, one process has it, and nobody else can write to it."""

import fcntl
import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.runtime import data_folder
from nats_scheduler.runtime.data_folder import ClaimedFolder, boot_id, claim, default_folder
from nats_scheduler.settings.connection_settings import ConnectionSettings
from nats_scheduler.settings.sidecar_settings import SidecarSettings

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder to another user")

STRANGER = 65534


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Give a directory like the temporary one, into which everyone may write."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    return folder


@pytest.fixture
def claimed() -> Iterator[Callable[[Path], ClaimedFolder]]:
    """Claim folders that can be used, until the test ends."""
    made: list[ClaimedFolder] = []

    def claim_one(folder: Path) -> ClaimedFolder:
        found = claim(folder)
        assert isinstance(found, ClaimedFolder), found
        made.append(found)
        return found

    yield claim_one
    for one in made:
        one.close()


def rights(path: Path) -> int:
    """Return who may do what with a file."""
    return path.stat().st_mode & 0o777


def test_a_folder_is_made_for_this_user_alone_and_what_is_in_it_stays(
    tmp_path: Path, claimed: Callable[[Path], ClaimedFolder]
) -> None:
    folder = tmp_path / "a" / "b"
    first = claimed(folder)
    assert (first.path, rights(folder), rights(folder.parent)) == (folder, 0o700, 0o700)
    (folder / "rows").write_bytes(b"rows")
    first.close()
    first.close()
    claimed(folder)
    assert sorted(one.name for one in folder.iterdir()) == ["lock", "rows"], "the probe is gone"
    assert ((folder / "rows").read_bytes(), rights(folder / "lock")) == (b"rows", 0o600)


def test_a_folder_is_claimed_once_and_cleaners_of_old_files_leave_it(
    tmp_path: Path, claimed: Callable[[Path], ClaimedFolder]
) -> None:
    first = claimed(tmp_path)
    assert claim(tmp_path) == "another process uses it"
    descriptor = os.open(tmp_path, os.O_RDONLY)
    try:
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(descriptor)
    first.close()
    claimed(tmp_path)


def test_the_same_settings_have_the_same_folder_and_others_another(
    shared: Path, monkeypatch: pytest.MonkeyPatch, claimed: Callable[[Path], ClaimedFolder]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(shared))

    def folder(*, bucket: str = "nats_scheduler", port: int | None = None, **connection: Any) -> Path:
        settings = SidecarSettings(
            connection=ConnectionSettings(**connection), registry_bucket=bucket, metrics_port=port
        )
        return default_folder(settings)

    servers = ("nats://a:pw@n1", "nats://n2")
    first = folder(servers=servers)
    assert first.parent == shared / f"nats-scheduler-{os.geteuid()}"
    assert list(shared.iterdir()) == [], "nothing is made"
    assert folder(servers=("nats://n2", "nats://a:other@n1:4222")) == first, "another order, and another password"
    assert folder(user="me", password="a") == folder(user="me", password="b")  # noqa: S106
    others = [
        *(folder(), folder(servers=("nats://n2",)), folder(servers=("nats://b:pw@n1", "nats://n2"))),
        *(folder(user="me"), folder(user="you"), folder(creds=Path("me")), folder(nkey=Path("me"))),
        *(folder(tls_cert=Path("me"), tls_key=Path("k")), folder(js_domain="hub"), folder(connection_name="b")),
        *(folder(bucket="other"), folder(port=9464)),
    ]
    assert len({first, *others}) == 1 + len(others)
    assert rights(claimed(first).path.parent) == 0o700


def test_in_a_shared_directory_nothing_that_others_may_change_is_used(shared: Path, tmp_path: Path) -> None:
    mine, open_one, link, group = (shared / name for name in ("mine", "open", "link", "group"))
    for folder, mode in ((tmp_path / "target", 0o700), (mine, 0o755), (open_one, 0o777), (group, 0o770)):
        folder.mkdir()
        folder.chmod(mode)
    link.symlink_to(tmp_path / "target")
    (mine / "link").symlink_to(tmp_path / "target")
    a_link = "is a link, in a directory into which everyone may write"
    for folder, reason in (
        (link, f"{link} {a_link}"),
        (link / "data", f"{link} {a_link}"),
        (mine / "link", f"{mine / 'link'} {a_link}"),
        (open_one, f"others can write to {open_one}"),
        (open_one / "data", f"others can write to {open_one}"),
        (group, f"others can write to {group}"),
        (shared, f"everyone can write to {shared}: name a folder in it"),
    ):
        assert claim(folder) == reason
    assert list((tmp_path / "target").iterdir()) == [], "nothing was written"


@as_root
def test_in_a_shared_directory_nothing_of_another_user_is_used(shared: Path) -> None:
    strange = shared / "strange"
    strange.mkdir(0o755)
    os.chown(strange, STRANGER, STRANGER)
    for folder in (strange, strange / "data"):
        assert claim(folder) == f"{strange} is owned by user {STRANGER}"
    assert list(strange.iterdir()) == []


def test_elsewhere_an_operator_may_name_a_link_or_a_folder_of_a_group(
    tmp_path: Path, claimed: Callable[[Path], ClaimedFolder]
) -> None:
    """As a folder of systemd for a user that exists while the unit runs is a link, and a volume belongs to a group."""
    target = tmp_path / "private" / "name"
    target.mkdir(parents=True)
    target.chmod(0o2770)
    link = tmp_path / "name"
    link.symlink_to("private/name")
    claimed(link)
    assert (target / "lock").exists()


def test_what_cannot_be_a_folder_is_told(tmp_path: Path) -> None:
    file, dangling = tmp_path / "file", tmp_path / "dangling"
    file.touch()
    dangling.symlink_to(tmp_path / "nowhere")
    assert claim(file) == f"{file} is no folder"
    assert claim(file / "data") == f"{file} is no folder"
    assert claim(dangling) == f"not writable: {dangling} (No such file or directory)"
    long = tmp_path / ("x" * 300)
    assert claim(long) == f"not writable: {long} (File name too long)"


def test_no_link_takes_the_place_of_the_lock(tmp_path: Path) -> None:
    other, folder = tmp_path / "other", tmp_path / "data"
    folder.mkdir()
    (folder / "lock").symlink_to(other)
    assert str(claim(folder)).startswith(f"not writable: {folder / 'lock'}")
    assert not other.exists()


def test_a_start_that_the_system_does_not_tell_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path, content in ((tmp_path / "none", None), (tmp_path / "odd", b"\xff")):
        if content is not None:
            path.write_bytes(content)
        monkeypatch.setattr(data_folder, "BOOT_ID", path)
        assert boot_id() == ""
