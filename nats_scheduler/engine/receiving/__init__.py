"""The meaning of a stream's messages: which are schedules, which are held, and which are only listed.

- `intake.py`: what a message that was received means
- `admission.py`: which schedules are held, which wait for a place, and which the stream removed without a message
- `replaced.py`: what another message replaces before it fires
- `fired_by_server.py`: the same of those that the server itself fires
- `watched.py`: the fires of schedules that are only watched, since the server fires them or nothing does
- `named_calendars.py`: the calendars that schedules name, and what an edit of one changes
"""
