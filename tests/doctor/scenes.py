"""Streams on which a finding is reported, each beside one that differs in the decisive thing alone.

What is found about one schedule alone is in `tests/message/test_schedule_findings.py`.

Its rule: a scene builds streams whose names begin with the given one, so that many scenes share a server.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from nats_scheduler.jetstream.calendar_bucket import CalendarBucket
from nats_scheduler.message.findings import Code
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from tests.harness.account import Account, in_seconds
from tests.harness.flagged import FLAGGED
from tests.harness.servers import V2_10, V2_11, V2_12, V2_14, V2_15

NEVER = "@at 2199-01-01T00:00:00Z"

EXCEPT = "Nats-Schedule-X-Except"

Build = Callable[[Account, str], Awaitable[None]]


class Scene(NamedTuple):
    """A fault on a server of a version, and the right state, on the same version unless another one is named."""

    version: str
    wrong: Build
    right: Build
    right_version: str | None = None


def schedule(name: str, pattern: str = NEVER, **more: str) -> dict[str, str]:
    """Return the headers of a schedule with the target `<name>.out`."""
    return {"Nats-Schedule": pattern, "Nats-Schedule-Target": f"{name}.out", **more}


async def emulated(account: Account, name: str, **config: Any) -> None:
    """Create a stream that a sidecar would serve on a server without schedules."""
    await account.create(name, metadata=FLAGGED, allow_msg_schedules=False, **config)


async def consumer(account: Account, stream: str, filter_subject: str, name: str = "app") -> None:
    """Create a consumer that acknowledges what it receives."""
    config = {"name": name, "durable_name": name, "ack_policy": "explicit", "filter_subject": filter_subject}
    await account.api.call(
        f"CONSUMER.CREATE.{stream}.{name}.{filter_subject}", {"stream_name": stream, "config": config}
    )


async def copy(account: Account, stream: str, kind: str = "sources", **origin: Any) -> None:
    """Create a stream that copies another one."""
    given = {"name": stream, **origin}
    await account.create(
        f"{stream}-copy",
        subjects=[],
        allow_msg_schedules=False,
        **{kind: [given] if kind == "sources" else given},
    )


def stored(pattern: str = NEVER, **headers: str) -> Build:
    """Return a scene: a flagged stream with one schedule, fired by a sidecar or by the server."""

    async def build(account: Account, name: str) -> None:
        await account.create(name, metadata=FLAGGED)
        await account.publish(f"{name}.s", schedule(name, pattern, **headers))

    return build


async def without_calendar(account: Account, name: str) -> None:
    """Build a scene: a flagged stream with one schedule that names a calendar that does not exist."""
    await stored("@hourly", **{EXCEPT: f"calendar:{name}"})(account, name)


async def with_calendar(account: Account, name: str) -> None:
    """Build a scene: a flagged stream with one schedule that names a calendar that exists."""
    calendars = CalendarBucket(account.connection, account.api, SidecarSettings().calendars_bucket)
    await calendars.open()
    assert await calendars.write(name, b"2026-12-25\n", 0)
    await without_calendar(account, name)


def configured(pattern: str = NEVER, count: int = 0, **config: Any) -> Build:
    """Return a scene: a flagged stream of this configuration, with one schedule and `count` messages after it."""

    async def build(account: Account, name: str) -> None:
        await account.create(name, metadata=FLAGGED, **config)
        await account.publish(f"{name}.s", schedule(name, pattern))
        for number in range(count):
            await account.publish(f"{name}.{number}")

    return build


def consumed(retention: str, part: str | None) -> Build:
    """Return a scene: a flagged stream with a consumer of `<name>.<part>`, and no schedule."""

    async def build(account: Account, name: str) -> None:
        await emulated(account, name, retention=retention)
        if part is not None:
            await consumer(account, name, f"{name}.{part}")
        await account.publish(f"{name}.s", schedule(name))

    return build


def copied(retention: str, kind: str = "sources", part: str | None = None) -> Build:
    """Return a scene: a flagged stream that another one copies, all of it or `<name>.<part>`."""

    async def build(account: Account, name: str) -> None:
        await account.create(name, metadata=FLAGGED, retention=retention)
        await account.publish(f"{name}.s", schedule(name))
        origin = {} if part is None else {"filter_subject": f"{name}.{part}"}
        await copy(account, name, kind, **origin)

    return build


def copied_beside_a_consumer(*, receives_schedules: bool) -> Build:
    """Return a scene: an interest stream that another one copies, with a consumer of all of it or of the target."""

    async def build(account: Account, name: str) -> None:
        await copied("interest")(account, name)
        await consumer(account, name, f"{name}.>" if receives_schedules else f"{name}.out")

    return build


async def dormant(account: Account, name: str) -> None:
    """Flag a stream as a sidecar does, on a server that has schedules."""
    await emulated(account, name)


async def unflagged(account: Account, name: str) -> None:
    """Store a schedule in a stream without the flag."""
    await account.create(name, allow_msg_schedules=False)
    await account.publish(f"{name}.s", {f"X-{header}": value for header, value in schedule(name).items()})


async def replaced(account: Account, name: str) -> None:
    """Store a schedule in a stream without the flag, and another message over it."""
    await unflagged(account, name)
    await account.publish(f"{name}.s")


async def sealed(account: Account, name: str) -> None:
    """Seal a stream with schedules."""
    info = await account.create(name)
    await account.api.call(f"STREAM.UPDATE.{name}", {**info["config"], "sealed": True})


def twice(*bodies: bytes) -> Build:
    """Return a scene: schedules that differ in their subjects and in these bodies."""

    async def build(account: Account, name: str) -> None:
        await emulated(account, name)
        for number, body in enumerate(bodies):
            await account.publish(f"{name}.{number}", schedule(name, "@every 1h"), body)

    return build


SCENES: Mapping[Code, Scene] = {
    Code.DORMANT: Scene(V2_14, dormant, stored()),
    Code.CONSUMER_TAKES_SCHEDULES: Scene(V2_11, consumed("workqueue", ">"), consumed("workqueue", "out")),
    Code.COPIES_REMOVE_SCHEDULES: Scene(V2_11, copied("workqueue"), copied("workqueue", part="out")),
    Code.NO_INTEREST: Scene(V2_11, consumed("interest", None), consumed("interest", ">")),
    Code.EVICTS_SOON: Scene(V2_11, configured(max_msgs=20, count=19), configured(max_msgs=200, count=19)),
    Code.SCHEDULE_ENDS_EARLY: Scene(
        V2_11, configured(max_age=3_600_000_000_000), configured(f"@at {in_seconds(600)}", max_age=3_600_000_000_000)
    ),
    Code.SCHEDULE_REJECTED: Scene(V2_11, stored("@often"), stored("@hourly")),
    Code.CALENDAR_MISSING: Scene(V2_11, without_calendar, with_calendar),
    Code.DEFECT_STREAM_LOST: Scene(V2_14, sealed, stored()),
    Code.DEFECT_COPIES_STALL: Scene(V2_12, copied("limits", "mirror"), copied("limits", "mirror"), V2_14),
    Code.SCHEDULES_UNSERVED: Scene(V2_11, unflagged, replaced),
    Code.SHORT_DUPLICATE_WINDOW: Scene(
        V2_11, configured(duplicate_window=1_000_000_000), configured(duplicate_window=5_000_000_000)
    ),
    Code.HEADER_MISNAMED: Scene(V2_11, stored(**{"Nats-Schedule-Timezone": "Europe/Berlin"}), stored()),
    Code.SCHEDULES_EQUAL: Scene(V2_11, twice(b"same", b"other", b"same"), twice(b"same", b"other")),
    Code.TARGET_UNREAD: Scene(V2_11, consumed("limits", "another"), consumed("limits", "out")),
    Code.GRADUATION_BLOCKED: Scene(V2_11, stored("@every 1500ms"), stored("@every 1s")),
    Code.POLICIES_IGNORED: Scene(
        V2_15,
        stored("@every 1h", **{"Nats-Schedule-X-Limit": "3"}),
        stored("@every 1h", **{"Nats-Schedule-X-Note": "a"}),
    ),
    Code.NO_GUARD: Scene(V2_10, stored(), stored(), V2_11),
    Code.AT_ONLY: Scene(V2_12, stored(), stored(), V2_14),
    Code.COPIED: Scene(V2_11, copied("limits"), copied("limits", part="out")),
}
