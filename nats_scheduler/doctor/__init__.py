"""The doctor: what is wrong with an account, why it matters, and what to type."""
