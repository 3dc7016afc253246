"""What to do next: one synchronous step, inputs in, actions out. Pure."""
