"""`nats-scheduler`, started two hundred times at the cost of one start: for the commands that the pages show.

Its rule: a command runs in a process of its own, with the arguments, environment, folder and files of its caller, and
its exit code is the caller's.
Why: the import of the program is most of a short command. One process imports it and forks for each call; a small
program of its name hands a call over, with its open files.
Limit: signals reach the small program only, so commands that run until they are ended are started as they are.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
import tempfile
from array import array
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path

from tests.harness.processes import ChildProcess

CALLER = """#!{python} -IS
import array, json, os, socket, struct, sys
call = json.dumps({{"arguments": sys.argv[1:], "environment": dict(os.environ), "folder": os.getcwd()}}).encode()
with socket.socket(socket.AF_UNIX) as line:
    line.connect({address!r})
    files = array.array("i", [0, 1, 2])
    line.sendmsg([struct.pack("!I", len(call))], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
    line.sendall(call)
    answer = line.recv(1)
sys.exit(answer[0] if answer else 137)
"""
"""The stand-in for the console script; it takes a fiftieth of a second."""
LENGTH = struct.Struct("!I")
FILES = 3
INTERNAL = 70
"""The exit code where the program ended with an error of its own, and no code."""


@asynccontextmanager
async def preloaded() -> AsyncIterator[Path]:
    """Start the process that forks, and give the folder that has a `nats-scheduler` in it."""
    with tempfile.TemporaryDirectory(prefix="pages-") as name:  # the address of a socket has to be short
        folder = Path(name)
        address, program = folder / "calls", folder / "bin" / "nats-scheduler"
        program.parent.mkdir()
        program.write_text(CALLER.format(python=sys.executable, address=str(address)))
        program.chmod(0o755)
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        command = [sys.executable, "-m", "tests.site.preloaded", str(address)]
        with ChildProcess(command, folder, name="preloaded", env=environment) as process:
            await process.wait_for_line("^ready$")
            yield program.parent


def _serve(address: str) -> None:
    """Import the program, and fork for each call, until killed."""
    from nats_scheduler.cli.main import COMMANDS

    for place, _help in COMMANDS.values():
        import_module(place.partition(":")[0])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address)
        listener.listen(64)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            line, _ = listener.accept()
            with line:
                if os.fork() == 0:
                    listener.close()
                    os._exit(_answer(line))


def _answer(line: socket.socket) -> int:
    """Run one command as its caller, and send its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    begin, files, _, _ = socket.recv_fds(line, LENGTH.size, FILES)
    (length,) = LENGTH.unpack(begin)
    call = json.loads(b"".join(_exactly(line, length)))
    for number, file in enumerate(array("i", files)):
        os.dup2(file, number)
        os.close(file)
    os.chdir(call["folder"])
    os.environ.clear()
    os.environ.update(call["environment"])
    code = _run(call["arguments"])
    line.sendall(bytes([code]))
    return code


def _exactly(line: socket.socket, length: int) -> list[bytes]:
    parts: list[bytes] = []
    while length:
        parts.append(line.recv(length))
        length -= len(parts[-1])
    return parts


def _run(arguments: list[str]) -> int:
    """Run the program's entry point, and return the exit code that its process would have."""
    from nats_scheduler.cli.main import main

    sys.argv = ["nats-scheduler", *arguments]
    code: object = INTERNAL
    try:
        main(prog_name="nats-scheduler")
    except SystemExit as end:
        code = end.code
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    if isinstance(code, str):
        sys.stderr.write(f"{code}\n")
        return 1
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    _serve(sys.argv[1])
