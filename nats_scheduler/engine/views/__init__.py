"""The views of an engine, which change nothing in it.

- `view.py`: pages, counts, and one schedule by its subject
- `conditions.py`: the schedules that a query names, as a condition of SQL
- `rows.py`: the rows of a stream at one moment, and questions about them
- `seen.py`: what one engine holds at one moment, objects and rows
- `silent.py`: the schedules that are to fire and do not, as their patterns show
- `survey.py`: the few schedules by which all can be judged
- `timeline.py`: the fires of the next minutes
- `figures.py`: the figures of a scrape
- `outlook.py`: the state of a schedule, and its next fire
- `cursors.py`: the cursors of pages
"""
