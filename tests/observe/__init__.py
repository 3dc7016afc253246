"""Tests of what operators and their tools are shown: pages, metrics, log lines."""
