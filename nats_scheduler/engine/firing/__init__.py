"""What may happen to a schedule, and what is done then; all state is in `engine.holding`.

Each module calls those below it only; `pyproject.toml` holds that.

- `other_stream.py`: fires into other streams, which are looked for before they are sent
- `answers.py`: which schedule an answer, a request or an outcome concerns
- `confirming.py`: fires that are seen in the stream, whichever instance stored them
- `machine.py`: the table: stage and event, what acts, and the stages that may follow
- `outcomes.py`: stored, refused, unknown, forged, not found: what it means for the schedule
- `fetched.py`: what follows once a content was fetched, and when it may have changed
- `due.py`: what happens when the time has come: fetch, send, block, or leave to the owner
- `identities.py`: the identity of a fire whose own one cannot be had
- `advancing.py`: from a stored or dropped fire to the next one, or to the end
- `catching_up.py`: which fires are missed, and wait for their turn
- `blocking.py`: `X-Overlap` and `X-Timeout`: whether a fire has to wait for the fire before
- `sending.py`: fires are built and handed out, once or again
- `fetching.py`: contents are asked for
- `timing.py`: when a schedule is looked at next, by the owner and by a standby
- `building.py`: the bytes of a fire, and what the server would refuse
- `purging.py`: purges of schedules that are done, and roll-ups of targets
- `silence.py`: schedules that store nothing although they are to
"""
