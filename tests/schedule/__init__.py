"""The schedule language, held against recorded answers, against independent oracles and against itself."""
