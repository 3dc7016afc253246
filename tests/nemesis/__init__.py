"""Rounds on real servers and real sidecar processes under a scripted nemesis, judged by the promises."""
