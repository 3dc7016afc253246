"""The settings of a connection to NATS servers: addresses, credentials, TLS and deadlines.

Rule: a printed settings object shows no secret. Secrets are `SecretStr`, addresses are masked in every repr and every
dump to JSON; code gets the plain value only by name (`get_secret_value`, `servers`).
The fields are those of the `nats` CLI's flags and contexts that the client supports, under one name each.
Cost: none after start. Limit: files are named here, not read; `load.py` reports a missing one early.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    SerializationInfo,
    field_serializer,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from nats_scheduler.schedule.instants import MILLISECOND, MINUTE, SECOND
from nats_scheduler.settings.duration_range import DurationRange
from nats_scheduler.settings.server_addresses import EXPECTED_URL, masked_url, read_server

DEFAULT_SERVER = "nats://127.0.0.1:4222"
SUBJECT_PREFIX_PATTERN = r"^[^\s.*>]+(\.[^\s.*>]+)*$"
"""A literal subject: tokens without blanks and wildcards, joined by dots."""

API_PREFIX_PATTERN = r"^[^\s.*>_][^\s.*>]*(\.[^\s.*>]+)*$"
"""The same, but no inbox: a sidecar answers on the subject that a request names, if it begins with `_`."""

LOGIN_FIELDS = ("user", "creds", "nkey", "user_jwt")
"""The fields that select a way to log in, of which at most one is set; as in the CLI, a token may be set too."""


class ConnectionSettings(BaseModel):
    """The servers and the credentials of one connection."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    servers: Annotated[tuple[str, ...], Field(min_length=1)] = Field(
        default=(DEFAULT_SERVER,),
        description=(
            "Addresses of the NATS servers, tried in random order, the one that failed last at the end: "
            "nats:// or tls://, port 4222 if none is given. "
            "May contain user:password@, which is never printed. At least one."
        ),
    )
    creds: Path | None = Field(default=None, description="File with a user's JWT and seed (.creds).")
    user: str | None = Field(default=None, description="User name.")
    password: SecretStr | None = Field(default=None, description="Password of the user; needs user.")
    token: SecretStr | None = Field(default=None, description="Token to log in with.")
    nkey: Path | None = Field(default=None, description="File with the seed of an NKey.")
    user_jwt: SecretStr | None = Field(default=None, description="JWT of the user: the JWT itself, not a file.")
    user_seed: SecretStr | None = Field(
        default=None, description="Seed that signs for user_jwt: the seed itself, not a file; needs user_jwt."
    )
    tls_cert: Path | None = Field(default=None, description="File with the client's certificate; needs tls_key.")
    tls_key: Path | None = Field(
        default=None, description="File with the private key of the client's certificate; needs tls_cert."
    )
    tls_ca: Path | None = Field(default=None, description="File with the certificate authorities to trust.")
    tls_first: bool = Field(default=False, description="Begin TLS before the server sends anything (handshake_first).")
    js_domain: str | None = Field(
        default=None,
        pattern=r"^[^\s.*>]+$",
        description="JetStream domain to use: one subject token. Has priority over js_api_prefix.",
    )
    js_api_prefix: str | None = Field(
        default=None,
        pattern=API_PREFIX_PATTERN,
        description="Subject prefix of JetStream's API if it is imported from another account; it begins with no `_`.",
    )
    inbox_prefix: str = Field(
        default="_INBOX",
        pattern=SUBJECT_PREFIX_PATTERN,
        description="Subject prefix of the inboxes on which replies arrive.",
    )
    connection_name: str = Field(
        default="nats-scheduler",
        min_length=1,
        description="Name of the connection in the server's lists and logs.",
    )
    connect_timeout: Annotated[int, DurationRange(100 * MILLISECOND, 5 * MINUTE)] = Field(
        default=2 * SECOND,
        description="Longest wait for one server to accept the connection: a duration, 100ms to 5m.",
    )
    request_timeout: Annotated[int, DurationRange(100 * MILLISECOND, 5 * MINUTE)] = Field(
        default=5 * SECOND,
        description="Longest wait for the reply to a request to JetStream: a duration, 100ms to 5m.",
    )

    @property
    def connect_timeout_seconds(self) -> float:
        """Return the deadline of a connection attempt in seconds, as the client expects it."""
        return self.connect_timeout / SECOND

    @property
    def request_timeout_seconds(self) -> float:
        """Return the deadline of a request in seconds, as asyncio expects it."""
        return self.request_timeout / SECOND

    @property
    def api_prefix(self) -> str:
        """Return the subject prefix of every JetStream request, such as `$JS.API` or `$JS.<domain>.API`."""
        if self.js_domain:
            return f"$JS.{self.js_domain}.API"
        return self.js_api_prefix or "$JS.API"

    @property
    def masked_servers(self) -> tuple[str, ...]:
        """Return the addresses without their secrets, for printing."""
        return tuple(masked_url(server) for server in self.servers)

    @field_validator("servers", mode="after")
    @classmethod
    def _fill_in_servers(cls, servers: tuple[str, ...]) -> tuple[str, ...]:
        filled = tuple(read_server(server) for server in servers)
        if None in filled:
            bad = masked_url(servers[filled.index(None)])
            raise PydanticCustomError("server", "{expected}", {"expected": f"{EXPECTED_URL}, not '{bad}'"})
        return tuple(server for server in filled if server is not None)

    @model_validator(mode="after")
    def _check_combinations(self) -> Self:
        for key, needed in (
            ("password", "user"),
            ("user_seed", "user_jwt"),
            ("tls_cert", "tls_key"),
            ("tls_key", "tls_cert"),
        ):
            if getattr(self, key) is not None and getattr(self, needed) is None:
                raise PydanticCustomError("needs", "{expected}", {"key": key, "expected": f"{needed} to be set too"})
        kinds = [kind for kind in LOGIN_FIELDS if getattr(self, kind) is not None]
        if len(kinds) > 1:
            expected = f"one way to log in, not {' and '.join(kinds)} at once"
            raise PydanticCustomError("credentials", "{expected}", {"key": kinds[0], "expected": expected})
        return self

    @field_serializer("servers", when_used="json")
    def _mask_servers(self, servers: tuple[str, ...], info: SerializationInfo) -> list[str]:
        return [masked_url(server) for server in servers]

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        """Show the addresses without their secrets; pydantic masks the other secrets."""
        for name, value in super().__repr_args__():
            yield name, self.masked_servers if name == "servers" else value
