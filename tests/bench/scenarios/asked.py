"""The endpoints that an open status page asks."""

ENDPOINTS = (
    *("streams.list", "activity.list", "fires.recent", "timeline.list", "failures.list", "instances.list"),
    "health.get",
)
