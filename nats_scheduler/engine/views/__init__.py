"""The views of an engine, which change nothing in it: pages, figures, the next minutes, a graduation."""
