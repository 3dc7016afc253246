"""Tests of the schedule language: against recorded answers, against independent oracles and against itself."""
