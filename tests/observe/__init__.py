"""Tests of the pages, the metrics and the log lines for operators and their tools."""
