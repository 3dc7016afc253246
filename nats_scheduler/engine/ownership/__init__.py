"""Which instance owns a stream, which ones stand by, and what a takeover continues with.

- `takeover.py`: what a new owner continues with, what it reports and purges then, and checkpoints
- `owners.py`: which instance owns which stream
- `order.py`: the order of the instances for each stream, and which of them read it
- `ability.py`: which instances are able, and which owners are passed over
"""
