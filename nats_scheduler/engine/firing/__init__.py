"""The course of a fire: its content, its bytes, its identity, when it is sent, and what follows from its outcome."""
