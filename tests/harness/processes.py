"""Real child processes: the sidecar as an operator starts it, and any other command, always reaped.

Its rule: a process that a test started is gone when its `with` block ends, whatever state it was in, and on
Linux also when the test run itself is killed.
Output goes to files and not to pipes, so that a child never blocks on a reader and a failed test leaves it to
be read.
"""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from nats_scheduler.runtime.embedded import tied_to_this_process
from tests.harness.waiting import eventually

EXIT_SECONDS = 45.0
"""Longest wait for a process that was asked to end; a drain has its own deadline of 10 s."""
TEMPORARY = ".tmp"
"""The folder for temporary files, in the home folder of a process."""
LINE_SECONDS = 45.0
"""Longest wait for a line of output."""


class ChildProcess:
    """One process of a command, with its output in `folder/<name>.out` and `folder/<name>.err`."""

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        *,
        name: str = "child",
        env: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.out = folder / f"{name}.out"
        self.err = folder / f"{name}.err"
        with self.out.open("wb") as out, self.err.open("wb") as err:
            self._process = subprocess.Popen(
                tied_to_this_process(command),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env=clean_environment(folder) if env is None else dict(env),
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative is the signal that ended it."""
        return self._process.poll()

    @property
    def stdout(self) -> str:
        return self.out.read_text("utf-8", "replace")

    @property
    def stderr(self) -> str:
        return self.err.read_text("utf-8", "replace")

    async def wait_for_line(self, pattern: str, *, count: int = 1) -> str:
        """Wait until `count` complete lines of either output match (`re.search`); return the last of them.

        Fails at once, with the output, when the process ends before.
        """
        wanted = re.compile(pattern)
        lines = await eventually(
            lambda: self._matches(wanted, count),
            within_seconds=LINE_SECONDS,
            describe=lambda: f"{count} line(s) like {pattern!r} from {self._story()}",
        )
        return lines[-1]

    async def wait_for_exit(self, *, within_seconds: float = EXIT_SECONDS) -> int:
        """Wait until the process ends and return its exit code."""
        await eventually(
            lambda: self.exit_code is not None,
            within_seconds=within_seconds,
            describe=lambda: f"an end of {self._story()}",
        )
        assert self.exit_code is not None
        return self.exit_code

    async def terminate(self) -> int:
        """Send SIGTERM and return the exit code, which must come within the deadline."""
        self._process.send_signal(signal.SIGTERM)
        return await self.wait_for_exit()

    async def interrupt(self) -> int:
        """Send SIGINT, as Ctrl-C does, and return the exit code, which must come within the deadline."""
        self._process.send_signal(signal.SIGINT)
        return await self.wait_for_exit()

    def pause(self) -> None:
        """Send SIGSTOP: the process holds its connections and does nothing."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """End it with SIGKILL, paused or not, and reap it; harmless when it has ended."""
        self._process.kill()
        self._process.wait()

    def _matches(self, wanted: re.Pattern[str], count: int) -> list[str]:
        whole = [text[: text.rfind("\n") + 1] for text in (self.stdout, self.stderr)]
        lines = [line for text in whole for line in text.splitlines() if wanted.search(line)]
        if len(lines) < count and self.exit_code is not None:
            raise RuntimeError(f"no {count} line(s) like {wanted.pattern!r}: {self._story()}")
        return lines if len(lines) >= count else []

    def _story(self) -> str:
        state = "running" if self.exit_code is None else f"ended with {self.exit_code}"
        return f"{self.name} ({state})\nstdout:\n{self.stdout[-4000:]}\nstderr:\n{self.stderr[-4000:]}"


def sidecar(*arguments: str, folder: Path, name: str = "sidecar", env: Mapping[str, str] | None = None) -> ChildProcess:
    """Start `nats-scheduler ARGUMENTS…`; `env` is added to an environment without any NATS setting."""
    return ChildProcess(
        [*sidecar_command(), *arguments], folder, name=name, env={**clean_environment(folder), **(env or {})}
    )


def sidecar_command() -> list[str]:
    """Name the console script as it is installed beside this Python."""
    return [str(Path(sys.executable).parent / "nats-scheduler")]


def clean_environment(home: Path) -> dict[str, str]:
    """Copy our environment without NATS settings, and with a home folder that holds no saved contexts.

    Temporary files are in that folder too, and with them the table of schedules of a sidecar: the next one that has
    the same home and the same settings continues from it.
    """
    kept = {key: value for key, value in os.environ.items() if not key.startswith("NATS")}
    temporary = home / TEMPORARY
    temporary.mkdir(parents=True, exist_ok=True)
    return {**kept, "HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), "TMPDIR": str(temporary)}
