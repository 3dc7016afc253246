"""The version of the package, in the one place that the build and the program both read."""

VERSION = "0.2.0"
