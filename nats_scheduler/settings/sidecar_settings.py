"""The settings of a sidecar: one frozen model, from which the JSON Schema and the reference page are derived.

Rule: the description of every field contains its unit, its range and its effect, because it is the documentation.
There is only one level of nesting (`connection`), so that a flag, a variable and a key of the file have the same name.
Cost: none after start. Limit: settings are read once; a change needs a restart.
"""

from dataclasses import replace
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    StringConstraints,
    model_validator,
)
from pydantic_core import PydanticCustomError

from nats_scheduler.engine.ownership.order import ALL_INSTANCES, DEFAULT_STANDBYS
from nats_scheduler.message.policies import DEFAULT_CATCH_UP_RATE
from nats_scheduler.message.restrictions import Restrictions
from nats_scheduler.message.subjects import request_beginnings
from nats_scheduler.schedule.durations import format_duration, parse_duration
from nats_scheduler.schedule.instants import DAY, HOUR, MILLISECOND, MINUTE, SECOND
from nats_scheduler.settings.connection_settings import ConnectionSettings
from nats_scheduler.settings.control_rules import ControlRules, RuleName, StreamName
from nats_scheduler.settings.duration_range import DurationRange
from nats_scheduler.settings.stream_values import (
    DEFAULT_BUDGET_NS,
    STREAM_WILDCARD,
    StreamBudget,
    StreamNumber,
    StreamRate,
    StreamSubject,
    restrictions_on,
    values_for,
)

MAX_WINDOW = 8192
"""Maximum fires in flight to one stream: a server drops messages without an error if over 10,000 are queued."""

MIN_BUCKET_BYTES = 64 * 1024
"""The least maximum size of a bucket."""

MIN_WEB_TOKEN_LENGTH = 20
"""Characters: a token that nobody guesses makes a limit on attempts unnecessary."""


def _address_range(text: str) -> str:
    if ip_network(text).prefixlen == 0:  # raises ValueError with what is wrong
        raise ValueError("the addresses of proxies are expected, and not every address")
    return text


StreamPattern = Annotated[str, StringConstraints(pattern=r"^[^\s/\\]+$", min_length=1, max_length=255)]
HostName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9.-]+$", min_length=1, max_length=253)]
HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]+$", min_length=1, max_length=100)]
AddressRange = Annotated[str, AfterValidator(_address_range)]
BucketName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]+$", min_length=1, max_length=200)]


class SidecarSettings(BaseModel):
    """Settings of `nats-scheduler run`."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, title="nats-scheduler settings")

    connection: ConnectionSettings = Field(
        default_factory=ConnectionSettings, description="The servers, and how to log in to them."
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
            "Streams on which the portable headers (X-Nats-Schedule) are served although allow_msg_schedules "
            "is not set."
        ),
    )
    adopt_streams: tuple[StreamPattern, ...] = Field(
        default=(),
        description=(
            "Streams that get the flag without being asked for it, on servers up to 2.11: names, in which `*` stands "
            "for any characters, or subjects with wildcards, which name each stream that has such a subject. It is for "
            "streams that an application may create before the sidecar runs. Streams with subjects that begin with `$` "
            "are named by their full names only."
        ),
    )
    allowed_targets: tuple[StreamSubject, ...] = Field(
        default=(),
        description=(
            "Subjects that schedules may have as targets, each as STREAM=SUBJECT; wildcards are allowed, and `*` "
            "stands for every stream that is not named. A stream without an entry is not restricted."
        ),
    )
    allowed_sources: tuple[StreamSubject, ...] = Field(
        default=(),
        description=(
            "Subjects that schedules may have as sources, each as STREAM=SUBJECT; wildcards are allowed, and `*` "
            "stands for every stream that is not named. A stream without an entry is not restricted."
        ),
    )
    allowed_targets_elsewhere: tuple[StreamSubject, ...] = Field(
        default=(),
        description=(
            "Subjects of other streams that schedules may have as targets (X-Target), each as STREAM=SUBJECT, where "
            "STREAM is the stream of the schedules; wildcards are allowed, and `*` stands for every stream that is not "
            "named. A stream without an entry may have none. A wildcard as the first token does not stand for "
            "subjects that begin with `$`."
        ),
    )
    max_schedules: tuple[StreamNumber, ...] = Field(
        default=(),
        description=(
            "Maximum number of schedules held at the same time, each entry as STREAM=NUMBER, 0 to 999999999; `*` "
            "stands for every stream that is not named. A stream without an entry is not restricted. "
            "The schedules that were stored first are held; the others are rejected until one of those ends."
        ),
    )
    window: int = Field(
        default=256,
        ge=1,
        le=MAX_WINDOW,
        description=(
            "Maximum number of fires in flight to one stream, without an acknowledgement: 1 to 8192 messages. "
            "There are never more than 256 in flight, so a larger number changes nothing; a smaller one loads a small "
            "server less, and makes a burst later."
        ),
    )
    ack_timeout: Annotated[int, DurationRange(100 * MILLISECOND, MINUTE)] = Field(
        default=2 * SECOND,
        description=(
            "Longest wait for the server to acknowledge a fire before it is sent again with the same "
            "identity: a duration, 100ms to 1m."
        ),
    )
    look_ahead: Annotated[int, DurationRange(10 * MILLISECOND, MINUTE)] = Field(
        default=10 * SECOND,
        description=(
            "How long before its due time a fire is prepared: a duration, 10ms to 1m. "
            "With a server of 2.10, which cannot refuse a stale fire, it is at most 50ms."
        ),
    )
    lateness_budget: tuple[StreamBudget, ...] = Field(
        default=(),
        description=(
            "How late a fire may be sent to share its wake with others, 0s to 500ms: a duration for every stream that "
            "is not named, or STREAM=DURATION for one. Without an entry it is 5ms. The more fires come within it, the "
            "less CPU each takes; new schedules and cancels are read up to the least budget of all streams later. With "
            "a server of 2.10, which cannot refuse a stale fire, it is at most 5ms."
        ),
    )
    catch_up_rate: tuple[StreamRate, ...] = Field(
        default=(),
        description=(
            "How many missed fires of a stream are sent in a second, 1 to 1000000, after an outage: a number for every "
            "stream that is not named, or STREAM=NUMBER for one. Without an entry it is 500. A fire is missed if it is "
            "more than 10s late; what comes due on time does not wait for those."
        ),
    )
    content_memory: int = Field(
        default=64 * 1024 * 1024,
        ge=1024 * 1024,
        le=2**40,
        description=(
            "Memory for the contents (headers and bodies) of fires that are being prepared or are in flight, of all "
            "streams together: 1048576 to 1099511627776 bytes. What does not fit waits until there is room, and what "
            "is small passes by what is large; a content that is larger than three quarters of it goes alone."
        ),
    )
    late_after: Annotated[int, DurationRange(10 * MILLISECOND, 24 * HOUR)] = Field(
        default=SECOND,
        description=(
            "How late a fire is stored, after its fire time, to be reported as late (`fire_late`): a duration, "
            "10ms to 24h, and more than lateness_budget, within which fires are late on purpose."
        ),
    )
    keep_failures: bool = Field(
        default=True,
        description=(
            "Whether a stream keeps the advisories, so that `nats-scheduler failures` shows what went wrong; the "
            "sidecar creates it if it does not exist."
        ),
    )
    failures_stream: StreamName = Field(
        default="nats_scheduler_failures",
        description=(
            "The stream that keeps the advisories; if it exists already, it needs the subject "
            "nats_scheduler.advisory.>."
        ),
    )
    failures_max_age: Annotated[int, DurationRange(MINUTE, 365 * DAY)] = Field(
        default=7 * DAY,
        description=(
            "How long an advisory is kept: a duration, 1m to 8760h. It is used when the stream is created, as are the "
            "next two; `nats stream edit` changes one that exists."
        ),
    )
    failures_max_bytes: int = Field(
        default=16 * 1024 * 1024,
        ge=64 * 1024,
        le=2**40,
        description=(
            "Maximum size of the stream: 65536 to 1099511627776 bytes. The server reserves it in the account; when it "
            "is reached, the oldest advisories are discarded."
        ),
    )
    failures_per_schedule: int = Field(
        default=10,
        ge=1,
        le=10_000,
        description="Maximum number of advisories of one kind that are kept about one schedule: the last 1 to 10000.",
    )
    standbys: int = Field(
        default=DEFAULT_STANDBYS,
        ge=0,
        le=ALL_INSTANCES,
        description=(
            "How many instances read each stream besides its owner, and hold its schedules, so that they can fire at "
            "once: 0 to 1000; 1000 stands for all. With 0, what was to fire while the owner is replaced is late until "
            "the stream was read again. Give all sidecars of an account the same value."
        ),
    )
    data: Path | None = Field(
        default=None,
        description=(
            "Folder in which the sidecar keeps its table of schedules, the file schedules.db, so that it goes on from "
            "there after a restart in place of reading all of each stream; it is created if it does not exist, and one "
            "sidecar uses it at a time. If it is not set, it is a folder in the temporary directory of the system, for "
            "the user of the process alone, and another one for other servers, another login or another bucket. If it "
            "cannot be used, the table is in memory."
        ),
    )
    drain_timeout: Annotated[int, DurationRange(0, 10 * MINUTE)] = Field(
        default=10 * SECOND,
        description="Longest wait at shutdown for fires in flight to be acknowledged: a duration, 0s to 10m.",
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="Format of log lines: text for people, json for machines."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level of the log lines that are printed: debug, info, warning or error."
    )
    metrics_port: int | None = Field(
        default=None,
        ge=0,
        le=65535,
        description=(
            "TCP port that serves /metrics for Prometheus, /healthz and /readyz: 0 to 65535, 0 selects a free one; "
            "if it is not set, there is none."
        ),
    )
    metrics_address: str = Field(
        default="127.0.0.1",
        pattern=r"^[^\s/\[\]]+$",
        description=(
            "Address or host name on which metrics_port listens, without brackets: 0.0.0.0 is every IPv4 address of "
            "the machine, :: every address."
        ),
    )
    canary_interval: Annotated[int, DurationRange(SECOND, HOUR)] | None = Field(
        default=None,
        description=(
            "How often the sidecar tests itself with a schedule of its own, the canary, which it fires in the stream "
            "nats_scheduler_canary: a duration, 1s to 1h; if it is not set, there is no canary. If its fires stop, "
            "/readyz says so."
        ),
    )
    service: bool = Field(
        default=True,
        description=(
            "Whether the sidecar answers requests about streams, schedules and instances, as the micro service "
            "nats-scheduler on nats_scheduler.v1.>, which nats micro ls shows. The subjects cannot be changed."
        ),
    )
    show_contents: bool = Field(
        default=True,
        description=(
            "Whether the sidecar answers requests for the bodies and for all headers of schedules and of their fires "
            "(content.get), which may hold secrets, and the status page shows them. Give all sidecars of an account "
            "the same value: any of them may receive a request."
        ),
    )
    allow_control: bool = Field(
        default=False,
        description=(
            "Whether the sidecar changes schedules for those who may publish to nats_scheduler.control.v1.>, with the "
            "permissions of its own user. Give all sidecars of an account the same value: any of them may receive a "
            "request. It needs service."
        ),
    )
    control_rules: ControlRules = Field(
        default=(),
        description=(
            "Rules by which the sidecar changes schedules for single teams: at most 100. Each rule has subjects of its "
            "own, `nats_scheduler.control.v1.for.<name>.>`: who may publish there may do what the rule allows and "
            "nothing else, also if allow_control is off. Give all sidecars of an account the same rules. It needs "
            "service, and is set in the file only."
        ),
    )
    registry_bucket: BucketName = Field(
        default="nats_scheduler",
        description=(
            "Key-value bucket for owners, heartbeats, checkpoints and flags: letters, digits, _ and -, "
            "1 to 200 characters."
        ),
    )
    bucket_max_bytes: int | None = Field(
        default=None,
        ge=MIN_BUCKET_BYTES,
        le=2**40,
        description=(
            "Maximum size of each bucket that the sidecar or a command creates (registry, calendars): 65536 to "
            "1099511627776 bytes, which the server reserves in the account. A full bucket takes no new keys, and "
            "values in place of others while they are not larger. If it is not set, there is none, or 16777216 in an "
            "account in which every stream needs a size."
        ),
    )
    bucket_storage: Literal["file", "memory"] | None = Field(
        default=None,
        description=(
            "Where these buckets and failures_stream are kept when they are created: file or memory. If it is not set, "
            "in files, or in memory if the account has no files (max_file: 0)."
        ),
    )
    calendars_bucket: BucketName = Field(
        default="nats_scheduler_calendars",
        description=(
            "Key-value bucket of the calendars that schedules name in X-Except: letters, digits, _ and -, 1 to 200 "
            "characters. It is optional; nats-scheduler calendar creates it."
        ),
    )
    web_port: int = Field(
        default=8225,
        ge=0,
        le=65535,
        description="TCP port of the status page, for `nats-scheduler web`: 0 to 65535, 0 selects a free one.",
    )
    web_address: str = Field(
        default="127.0.0.1",
        pattern=r"^[^\s/\[\]]+$",
        description=(
            "Address or host name on which the status page listens, without brackets: 0.0.0.0 is every IPv4 address of "
            "the machine, :: every address. One that is not loopback needs web_token or web_token_file."
        ),
    )
    web_token: SecretStr | None = Field(
        default=None,
        min_length=MIN_WEB_TOKEN_LENGTH,
        description="Token without which the status page shows nothing; a browser asks for it. At least 20 characters.",
    )
    web_token_file: Path | None = Field(
        default=None, description="File with that token, instead of web_token; blanks around it are ignored."
    )
    web_hosts: tuple[HostName, ...] = Field(
        default=(),
        description=(
            "Names under which browsers reach the status page, without a port, such as status.example.com behind a "
            "proxy. IP addresses, localhost and web_address are always accepted; a request for another name is refused."
        ),
    )
    web_control_token: SecretStr | None = Field(
        default=None,
        min_length=MIN_WEB_TOKEN_LENGTH,
        description=(
            "Token with which the status page changes schedules; if neither it nor web_user_header is set, the page "
            "only reads. It is another one than web_token, and opens the page too. At least 20 characters."
        ),
    )
    web_control_token_file: Path | None = Field(
        default=None, description="File with that token, instead of web_control_token; blanks around it are ignored."
    )
    web_control_rule: RuleName | None = Field(
        default=None,
        description=(
            "Name of one of the control_rules of the sidecars: the status page changes what that rule allows, and "
            "nothing else; without it, all schedules, if allow_control is on."
        ),
    )
    web_user_header: HeaderName | None = Field(
        default=None,
        description=(
            "Header in which a proxy names the user that it has authenticated, such as X-Forwarded-User: whom it names "
            "may see the status page and change schedules, under that name. It needs web_trusted_proxies."
        ),
    )
    web_trusted_proxies: tuple[AddressRange, ...] = Field(
        default=(),
        description=(
            "Addresses from which web_user_header counts, such as 10.0.0.7 or 10.1.0.0/16, but not all there are; from "
            "any other one it is ignored. So are X-Forwarded-For, which names the address that wrong tokens come from, "
            "X-Forwarded-Host, which has to be one of web_hosts, and X-Forwarded-Proto."
        ),
    )
    web_path_prefix: str = Field(
        default="",
        max_length=200,
        pattern=r"^(/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*$",
        description=(
            "Path below which browsers reach the status page, such as /scheduler, without a slash at its end: each "
            "address, form and cookie of the page has it. A proxy may pass it on or take it away."
        ),
    )

    def budget_on(self, stream: str) -> int:
        """Return how late (ns) a fire of a stream may be sent; of several budgets the least one applies."""
        budgets = [parse_duration(value) for value in values_for(stream, self.lateness_budget) or ()]
        return min((budget for budget in budgets if isinstance(budget, int)), default=DEFAULT_BUDGET_NS)

    def catch_up_rate_on(self, stream: str) -> int:
        """Return how many missed fires of a stream are sent in a second; of several numbers the least one applies."""
        return min(map(int, values_for(stream, self.catch_up_rate) or ()), default=DEFAULT_CATCH_UP_RATE)

    @property
    def most_budget(self) -> int:
        """How late (ns) a fire of some stream may be sent."""
        return max(self.budget_on(entry.partition("=")[0]) for entry in (STREAM_WILDCARD, *self.lateness_budget))

    @model_validator(mode="after")
    def _check_late_after(self) -> Self:
        if self.late_after <= self.most_budget:
            expected = (
                f"more than lateness_budget, {format_duration(self.most_budget)}, or fires that wait are reported"
            )
            raise PydanticCustomError("late", "{expected}", {"key": "late_after", "expected": expected})
        return self

    def restrictions_on(self, stream: str) -> Restrictions:
        """Return the operator's restrictions on schedules of a stream."""
        allowed = self.allowed_targets, self.allowed_sources, self.allowed_targets_elsewhere
        requests = request_beginnings(self.connection.api_prefix, self.connection.inbox_prefix, self.registry_bucket)
        return replace(restrictions_on(stream, *allowed, self.max_schedules), requests=requests)
