"""What both implementations of a contract promise, tested on both."""
