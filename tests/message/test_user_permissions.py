"""A list of permissions is judged as the server judges it."""

from nats_scheduler.message.user_permissions import PUBLISH, SUBSCRIBE, permits


def test_a_list_of_permissions_is_judged_as_the_server_does() -> None:
    rules: list[tuple[dict[str, object], bool]] = [
        ({}, True),
        ({"publish": {"allow": ["a.*"]}}, True),
        ({"publish": {"allow": ["b.*"]}}, False),
        ({"publish": {"deny": ["a.>"]}}, False),
        ({"publish": {"allow": ["a.b"], "deny": ["a.c"]}}, True),
        ({"subscribe": {"allow": ["nothing"]}}, True),
        ({"publish": "text"}, True),
    ]
    for rule, is_permitted in rules:
        assert permits(rule, PUBLISH, "a.b") is is_permitted, rule
    assert permits({"subscribe": {"allow": ["a.> workers"]}}, SUBSCRIBE, "a.b"), "without its queue group"
