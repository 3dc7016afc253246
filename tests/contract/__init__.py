"""The promises of both implementations of a contract, tested on both."""
