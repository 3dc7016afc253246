"""The settings of a connection to NATS servers: addresses, credentials, TLS and deadlines.

Rule: a printed settings object shows no secret. Secrets are `SecretStr`, addresses are masked in every repr and every
dump to JSON; code gets the plain value only by name (`get_secret_value`, `servers`).
The fields are those of the `nats` CLI's flags and contexts that the client supports, under one name each.
Cost: none after start. Limit: files are named here, not read; `load.py` reports a missing one early.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SecretStr,
    SerializationInfo,
    ValidationInfo,
    field_serializer,
    field_validator,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import PydanticCustomError, core_schema

from nats_scheduler.schedule.durations import format_duration, parse_duration
from nats_scheduler.schedule.instants import MILLISECOND, MINUTE, SECOND

# A duration in the settings: a Go duration string for people, nanoseconds for the program.
#
# Rule: text is parsed with the server's own grammar (`schedule.durations`), so `5s` means the same as in a header. It
# is pydantic metadata (`Annotated[int, DurationRange(...)]`) and not a type of its own: the rest of the package gets
# plain integers for its arithmetic. Cost: one parse per field at start. Limit: a number without a unit is rejected in
# a file, because it could be seconds or nanoseconds; only Python callers may pass an integer, which is nanoseconds.


@dataclass(frozen=True, slots=True)
class DurationRange:
    """The range of a duration: two bounds in nanoseconds, both allowed."""

    minimum: int
    maximum: int

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        """Accept text or nanoseconds; write text in every dump to JSON."""
        write = core_schema.plain_serializer_function_ser_schema(format_duration, when_used="json")
        return core_schema.with_info_plain_validator_function(self._read, serialization=write)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Describe the text form, the only one that a file can hold."""
        return {"type": "string", "format": "go-duration", "examples": [format_duration(self.minimum)]}

    def _read(self, value: object, info: ValidationInfo) -> int:
        nanoseconds = self._nanoseconds(value, info)
        if nanoseconds is None or not self.minimum <= nanoseconds <= self.maximum:
            raise PydanticCustomError("duration", "{expected}", {"expected": self.expected})
        return nanoseconds

    def _nanoseconds(self, value: object, info: ValidationInfo) -> int | None:
        """Return the nanoseconds of a value; None if it is not a duration at all."""
        if isinstance(value, str):
            parsed = parse_duration(value)
            return parsed if isinstance(parsed, int) else None
        if isinstance(value, int) and not isinstance(value, bool) and info.mode == "python":
            return value
        return None

    @property
    def expected(self) -> str:
        """Return what is accepted, as a part of a sentence."""
        low, high = format_duration(self.minimum), format_duration(self.maximum)
        return f"a duration from {low} to {high}, with its unit, such as '5s' or '250ms'"


# The addresses of NATS servers: parsed as the `nats` CLI parses them, printed without their secrets.
#
# Rule: the text between `//` and `@`, and all that follows the host and port, never appears in a log line, a repr or
# an error: a server takes no secret from there, but people write one there. Plain strings and not a URL class,
# because the client takes strings; code that prints an address calls `masked_url`. Cost: one split per address.
# Limit: plain TCP and TLS; the sidecar does not support websockets.

SCHEMES = ("nats", "tls")
DEFAULT_PORT = 4222
"""The port of an address without one."""

ADDRESS_MASK = "***"
"""The text that is shown for a secret in an address."""

EXPECTED_URL = "an address such as 'nats://127.0.0.1:4222' (nats or tls, no websocket; a port from 1 to 65535)"

_NEXT_ADDRESS = re.compile(r",(?=\s*[A-Za-z][\w+.-]*://)")
_ENDS_WITH_SCHEME = re.compile(r"(?:^|\s)[A-Za-z][\w+.-]*\Z")
_MARK = re.compile(r"[/?#]")
"""The characters that end a host and its port."""

_BARE = re.compile(r"[^/?#\s]*[?#]|[^/?#\s]*:\d+/|\w+:/+[^/?#]*[/?#]")
"""The beginning of an address without a scheme, or with a wrong one, up to what may hold a secret; of no path."""


def split_servers(text: str) -> tuple[str, ...]:
    """Split a comma-separated list as `nats --server` does, without the blanks around each part."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def read_server(text: str) -> str | None:
    """Return the address with its scheme and port filled in; None if the text is not an address."""
    url = text.strip() if "://" in text else f"nats://{text.strip()}"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in SCHEMES or not parts.hostname or port == 0 or re.search(r"\s", url):
        return None
    if port is None:
        netloc = parts.netloc.removesuffix(":")
        return parts._replace(netloc=f"{netloc}:{DEFAULT_PORT}").geturl()
    return url


def is_websocket(url: str) -> bool:
    """Return whether an address is that of a websocket."""
    return url.partition("://")[0] in ("ws", "wss")


def masked_url(text: str) -> str:
    """Return an address, or a comma-separated list, with its password or token replaced by `***`.

    A user without a password is a token for the server, so it is masked too; and so is a path, a query or a fragment.
    A secret may contain anything, also blanks, commas and marks: what may be a part of one is masked.
    """
    return ",".join(map(_masked_address, _NEXT_ADDRESS.split(text)))


def _masked_address(text: str) -> str:
    before, separator, address = text.partition("://")
    if separator:
        return before + separator + _masked(address) if _ENDS_WITH_SCHEME.search(before) else ADDRESS_MASK
    if "@" in text:
        return _masked(text)
    bare = _BARE.match(text)
    return text if bare is None or bare.end() == len(text) else bare[0] + ADDRESS_MASK


def _masked(address: str) -> str:
    """Return an address without a scheme, masked."""
    userinfo, at, host = address.rpartition("@")
    if _MARK.search(userinfo):
        return ADDRESS_MASK  # a password with a mark, or a query with an `@`: nothing shows where the host is
    mark = _MARK.search(host)
    if mark is not None and mark.end() < len(host):
        host = host[: mark.end()] + ADDRESS_MASK
    user, colon, _password = userinfo.partition(":")
    return (f"{user}:" if colon else "") + (ADDRESS_MASK + at if at else "") + host


DEFAULT_SERVER = "nats://127.0.0.1:4222"
MASK = "**********"
"""The text that is shown for a secret; its length does not depend on the secret's."""

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
