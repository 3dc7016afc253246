"""The engine of one stream: one synchronous step, inputs in, actions out. Pure.

A folder imports from those below it only; `pyproject.toml` holds that.

- `handover.py`: what would go wrong if the server itself fired the schedules of a stream
- `stored_schedules.py`: the schedules of a stream as its messages alone say, for lists and graduations
- `stream.py`: the order of a step, and which input goes to which part
- `restart.py`: what has to be known besides rows, so that another engine continues from them
- `views/`: what can be asked of an engine
- `receiving/`: what a message of the stream means
- `ownership/`: which instance owns the stream, and what a takeover continues with
- `firing/`: what may happen to a schedule, and what is done then
- `holding/`: what is known of the stream
- `stream_port.py`: the contract of what does it, on a real server or in memory
- `actions.py`: what is to be done
- `inputs.py`: what happened
- `events.py`: what is reported
- `fire.py`: a fire, and the questions about one
"""
