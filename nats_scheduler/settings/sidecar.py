"""What the operator can set: one frozen model, which is also the JSON Schema and the reference page.

Rule: every field says its unit, its range and what it limits, because the description is the documentation.
Nested only once (`connection`), so that a flag, a variable and a key of the file have the same name.
Cost: none after start. Limit: settings are read once; a change needs a restart.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from nats_scheduler.message.restrictions import Restrictions
from nats_scheduler.schedule.instants import MILLISECOND, MINUTE, SECOND
from nats_scheduler.settings.connection import ConnectionSettings
from nats_scheduler.settings.duration_field import DurationRange
from nats_scheduler.settings.restrictions import StreamNumber, StreamSubject, restrictions_on

WINDOW_LIMIT = 8192
"""Most fires in flight to one stream: past 10,000 in its ingest queue the server drops in silence."""

StreamName = Annotated[str, StringConstraints(pattern=r"^[^\s.*>/\\]+$", min_length=1, max_length=255)]
BucketName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]+$", min_length=1, max_length=200)]


class SidecarSettings(BaseModel):
    """Settings of `nats-scheduler run`."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, title="nats-scheduler settings")

    connection: ConnectionSettings = Field(
        default_factory=ConnectionSettings, description="How to reach the servers, and as whom."
    )
    streams_folder: Path | None = Field(
        default=None,
        description=(
            "Folder of stream configurations, one JSON file each, in the format of "
            "`nats stream add --config`, created or updated at start."
        ),
    )
    portable_streams: tuple[StreamName, ...] = Field(
        default=(),
        description=(
            "Streams to serve the portable headers (X-Nats-Schedule) on although they do not carry allow_msg_schedules."
        ),
    )
    allowed_targets: tuple[StreamSubject, ...] = Field(
        default=(),
        description=(
            "Subjects that schedules may fire into, each as STREAM=SUBJECT; wildcards are allowed, and `*` stands for "
            "every stream that is not named. A stream without an entry is not restricted."
        ),
    )
    allowed_sources: tuple[StreamSubject, ...] = Field(
        default=(),
        description=(
            "Subjects that schedules may sample, each as STREAM=SUBJECT; wildcards are allowed, and `*` stands for "
            "every stream that is not named. A stream without an entry is not restricted."
        ),
    )
    max_schedules: tuple[StreamNumber, ...] = Field(
        default=(),
        description=(
            "Most schedules that are held at one time, each entry as STREAM=NUMBER, 0 to 999999999; `*` stands for "
            "every stream that is not named. A stream without an entry is not restricted. "
            "The oldest stored schedules are held; the others are rejected, and wait for a place."
        ),
    )
    window: int = Field(
        default=256,
        ge=1,
        le=WINDOW_LIMIT,
        description=(
            "Most fires on their way to one stream without an acknowledgement: 1 to 8192 messages. "
            "No more than 256 are ever on their way, so that a larger number changes nothing; a smaller one asks less "
            "of a small server, and makes a herd later."
        ),
    )
    ack_timeout: Annotated[int, DurationRange(100 * MILLISECOND, MINUTE)] = Field(
        default=2 * SECOND,
        description=(
            "Longest wait for the server to acknowledge a fire before it is sent again under the same "
            "identity: a duration, 100ms to 1m."
        ),
    )
    look_ahead: Annotated[int, DurationRange(10 * MILLISECOND, MINUTE)] = Field(
        default=10 * SECOND,
        description=(
            "How long before its time a fire is prepared: a duration, 10ms to 1m. "
            "A server of 2.10, which cannot refuse a stale fire, gets 50ms at most."
        ),
    )
    drain_timeout: Annotated[int, DurationRange(0, 10 * MINUTE)] = Field(
        default=10 * SECOND,
        description="Longest wait at the end for fires in flight to be acknowledged: a duration, 0s to 10m.",
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="Form of log lines: text for people, json for machines."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Least important log line that is printed: debug, info, warning or error."
    )
    metrics_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description=(
            "TCP port that serves /metrics for Prometheus, /healthz and /readyz: 0 to 65535, 0 takes a free one; "
            "none unless given."
        ),
    )
    metrics_address: str = Field(
        default="127.0.0.1",
        pattern=r"^[^\s/\[\]]+$",
        description=(
            "Address or host name that metrics_port listens on, without brackets: 0.0.0.0 is every IPv4 address of "
            "the machine, :: every address."
        ),
    )
    registry_bucket: BucketName = Field(
        default="nats_scheduler",
        description="Key-value bucket that remembers streams: letters, digits, _ and -, 1 to 200 characters.",
    )

    def restrictions_on(self, stream: str) -> Restrictions:
        """Return what the operator allows schedules on a stream to do."""
        return restrictions_on(stream, self.allowed_targets, self.allowed_sources, self.max_schedules)
