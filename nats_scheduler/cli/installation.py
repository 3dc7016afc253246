"""Whether the files of the sidecar are all of one version: the client can be installed beside it, over the same files.

`nats-scheduler-client` has the same files under `nats_scheduler/` as `nats-scheduler`, and pip lets the last one win.
If their versions differ, the program would be a mixture of both.

The rule: a sidecar does not start from a mixture.
Cost: some milliseconds, to look for two folders; without the client nothing is read.
"""

from importlib.metadata import PackageNotFoundError, version

from nats_scheduler.cli.output import EXIT_WRONG_USE, CommandError

SIDECAR, CLIENT = "nats-scheduler", "nats-scheduler-client"


def check_installation() -> None:
    """End the command if the client is installed in another version over the files of the sidecar."""
    client, sidecar = _installed(CLIENT), _installed(SIDECAR)
    if client is not None and sidecar is not None and client != sidecar:
        remedy = f"pip uninstall {CLIENT}; pip install --force-reinstall --no-deps {SIDECAR}=={sidecar}"
        raise CommandError(
            f"{SIDECAR} {sidecar} and {CLIENT} {client} are installed over each other, in the same files: {remedy}",
            EXIT_WRONG_USE,
        )


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
