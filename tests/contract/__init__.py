"""What both implementations of a contract promise, asked of both."""
