"""What is known of the stream: one record, the parts of it, and the table of its schedules.

- `state.py`: the record that is passed, and the only functions that change a stage or end a schedule
- `places.py`: which schedules are held if the operator limits how many
- `scheduled.py`: which schedules are held, which of them have objects, and when each is looked at next
- `wake_queue.py`: the wakes of objects in order
- `schedule_rows.py`: a schedule as a row, and back
- `table.py`: the rows of all schedules, found by subject and by wake, in a file or in memory
- `held.py`: one schedule: its next fire, and what its policies decide
- `flight.py`: the stages, and what is in progress for one schedule
- `remembered.py`: what policies need to know of earlier fires, as a row has it
- `guard.py`: a failure of one schedule ends that schedule, and no other one
- `progress.py`: how far the stream was read, and which of our fires are still to be confirmed
- `stored_over.py`: the messages that were stored over schedules and leave them alive
- `claimed_fires.py`: why a message that claims to be a fire is none
- `inactive.py`: what is rejected or paused, and headers that are misnamed
- `lifetimes.py`: when the stream removes a schedule by itself, and why one is gone
- `expiry.py`: messages whose TTL has run out, where the server does not remove them
- `contents.py`: how many bytes of contents are in memory, and which wait for room
- `in_flight.py`: how many fires are in flight, and whether there is a burst
- `catch_up.py`: which schedules wait to make up a missed fire, and how many of them a second may
- `refusals.py`: which fires are refused, why, and which of them is retried next
- `proposals.py`: what may be in flight at the leader of a stream with replicas
- `purges.py`: purges that wait, that were ordered, and that others requested
- `deadlines.py`: `X-Done-Within`: whether stored fires get finished within their time
- `ownership.py`: whether this instance owns the stream, and what is noticed of the owner
"""
