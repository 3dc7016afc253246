"""The micro service: requests about schedules, streams and instances, answered from what the sidecar holds."""
