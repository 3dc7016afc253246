"""Messages of strangers: none may stop the sidecar, end its connection, or cost more than some milliseconds."""
