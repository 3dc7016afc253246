"""The stream configurations that nats-server 2.15.1 accepts with schedules, recorded for `test_stream_rules.py`.

`CREATES` holds (configuration, error code or None if created, description), `UPDATES` the configuration before and
after, each changed by `config` from the one that the answers were recorded with.
"""

from typing import Any

Config = dict[str, Any]

CREATES: list[tuple[Config, int | None, str]] = [
    ({}, None, ""),
    ({"allow_rollup_hdrs": True}, None, ""),
    ({"deny_purge": True}, None, ""),
    ({"retention": "workqueue"}, None, ""),
    ({"retention": "interest", "deny_delete": True}, None, ""),
    ({"pedantic": True, "allow_rollup_hdrs": True}, None, ""),
    ({"allow_msg_schedules": False, "allow_msg_counter": True}, None, ""),
    ({"sealed": True}, 10052, "stream configuration for create can not be sealed"),
    ({"sealed": True, "discard": "new"}, 10052, "stream configuration for create can not be sealed"),
    ({"deny_purge": True, "allow_rollup_hdrs": True}, 10052, "roll-ups require the purge permission"),
    ({"allow_msg_counter": True}, 10052, "counter stream cannot use message schedules"),
    ({"discard": "new"}, 10052, "message scheduling cannot use discard new"),
    ({"discard": "new", "pedantic": True}, 10052, "message scheduling cannot use discard new"),
    ({"pedantic": True}, 10052, "message scheduling cannot be set if roll-ups are disabled"),
    ({"subjects": [], "mirror": {"name": "O"}}, 10186, "stream mirrors can not also schedule messages"),
    ({"subjects": [], "sources": [{"name": "O"}]}, 10187, "stream source can not also schedule messages"),
    (
        {"sources": [{"name": "O"}], "discard": "new"},
        10052,
        "message scheduling cannot use discard new",
    ),
    ({"allow_msg_counter": True, "discard": "new"}, 10052, "counter stream cannot use discard new"),
    ({"allow_msg_counter": True, "allow_msg_ttl": True}, 10052, "counter stream cannot use message TTLs"),
    ({"mirror": {"name": "O"}}, 10034, "stream mirrors can not contain subjects"),
    (
        {"subjects": [], "mirror": {"name": "O"}, "sources": [{"name": "O"}]},
        10031,
        "stream mirrors can not also contain other sources",
    ),
    (
        {"subjects": [], "mirror": {"name": "O"}, "first_seq": 7},
        10143,
        "stream mirrors can not have first sequence configured",
    ),
    (
        {"subjects": [], "mirror": {"name": "O"}, "allow_atomic": True},
        10198,
        "stream mirrors can not also use atomic publishing",
    ),
    (
        {"subjects": [], "mirror": {"name": "O"}, "discard": "new"},
        10052,
        "message scheduling cannot use discard new",
    ),
    ({"subject_delete_marker_ttl": 10**10}, None, ""),
    ({"subject_delete_marker_ttl": 10**8}, 10052, "subject delete marker TTL must be at least 1 second"),
    (
        {"subject_delete_marker_ttl": 10**10, "pedantic": True},
        10052,
        "subject delete marker cannot be set if message TTLs are disabled",
    ),
    (
        {"subject_delete_marker_ttl": 10**10, "allow_msg_ttl": True, "pedantic": True},
        10052,
        "subject delete marker cannot be set if roll-ups are disabled",
    ),
]

UPDATES: list[tuple[Config, Config, int | None, str]] = [
    ({"allow_msg_schedules": False}, {}, None, ""),
    ({}, {"allow_rollup_hdrs": False}, None, ""),
    ({}, {"deny_purge": True}, None, ""),
    ({}, {"sealed": True}, None, ""),
    ({"allow_msg_schedules": False, "subjects": [], "sources": [{"name": "O"}]}, {}, None, ""),
    ({}, {"allow_msg_schedules": False}, 10052, "message schedules can not be disabled"),
    ({}, {"discard": "new"}, 10052, "message scheduling cannot use discard new"),
    ({}, {"sources": [{"name": "O"}]}, 10187, "stream source can not also schedule messages"),
    (
        {"allow_msg_schedules": False, "deny_purge": True},
        {"deny_purge": True},
        10052,
        "stream configuration update can not cancel deny purge",
    ),
    (
        {"allow_msg_schedules": False, "deny_purge": True},
        {"deny_purge": False},
        10052,
        "stream configuration update can not cancel deny purge",
    ),
    (
        {"allow_msg_schedules": False, "discard": "new"},
        {"discard": "new"},
        10052,
        "message scheduling cannot use discard new",
    ),
    (
        {"allow_msg_schedules": False, "allow_msg_counter": True},
        {"allow_msg_counter": True},
        10052,
        "counter stream cannot use message schedules",
    ),
    (
        {"allow_msg_schedules": False, "allow_msg_counter": True},
        {},
        10052,
        "stream configuration update can not change message counter setting",
    ),
    ({}, {"allow_msg_counter": True}, 10052, "counter stream cannot use message schedules"),
    ({"allow_msg_ttl": True}, {}, 10052, "message TTL status can not be disabled"),
    ({"allow_msg_ttl": True}, {"allow_msg_ttl": True}, None, ""),
    ({"subject_delete_marker_ttl": 10**10}, {"allow_msg_ttl": True}, None, ""),
    ({"allow_msg_ttl": True}, {"discard": "new"}, 10052, "message scheduling cannot use discard new"),
    ({"allow_msg_ttl": True}, {"allow_msg_schedules": False}, 10052, "message TTL status can not be disabled"),
]


def config(**changes: Any) -> Config:
    """Write a stream configuration with the flag on, changed by `changes`."""
    return {"name": "T", "subjects": ["t.>"], "allow_msg_schedules": True} | changes
