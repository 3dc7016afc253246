"""A stream's configuration as its server keeps it, whichever answer described it.

A server from 2.11 on adds its version and its API level to the metadata in some answers (STREAM.INFO, CREATE, UPDATE),
and not in others (STREAM.LIST). They say nothing of the stream, and two answers can be compared without them only.

The rule: what the server keeps stays, `_nats.req.level` included.
"""

from collections.abc import Mapping
from typing import Any

ANSWER_METADATA = frozenset({"_nats.ver", "_nats.level"})
"""The metadata that a server adds to an answer: its version and its API level."""


def as_kept(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration in an answer without what the server added to the answer."""
    metadata = config.get("metadata")
    if not isinstance(metadata, dict) or ANSWER_METADATA.isdisjoint(metadata):
        return dict(config)
    kept = {key: value for key, value in metadata.items() if key not in ANSWER_METADATA}
    others = {key: value for key, value in config.items() if key != "metadata"}
    return {**others, "metadata": kept} if kept else others
