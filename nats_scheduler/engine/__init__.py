"""The engine of one stream: one synchronous step, inputs in, actions out. Pure."""
