-- The table of the schedules of one process, as `nats_scheduler.engine.holding.table` makes and reads it.
-- All instants are nanoseconds since the Unix epoch. Cost: about 200 bytes for each schedule, with its indexes.

-- One row: what is known of the file.
CREATE TABLE file (
    boot TEXT NOT NULL,         -- of the machine, since the file was opened last
    is_closed INTEGER NOT NULL, -- 1 if it was closed then
    commits INTEGER NOT NULL    -- the number of transactions: the file beside it knows the last one
);

-- The streams, and what is known of each besides its schedules.
CREATE TABLE streams (
    number INTEGER PRIMARY KEY, -- stands for the stream in `schedules`
    name TEXT NOT NULL,         -- of the stream
    mode TEXT NOT NULL,         -- emulated, native or dormant: who fires which headers
    basis TEXT NOT NULL,        -- the digest of all that its engine depends on
    document TEXT,              -- what `nats_scheduler.engine.restart` continues from, as JSON; NULL: nothing yet
    ends INTEGER NOT NULL,      -- rows may say more: the stream has to have everything up to this sequence
    kinds TEXT NOT NULL,        -- the number of its rows of each kind, as JSON
    checksum INTEGER NOT NULL   -- of the columns above
);
CREATE UNIQUE INDEX streams_by_name ON streams (name, mode);

-- A row for each schedule: the last valid schedule message on its subject.
CREATE TABLE schedules (
    id INTEGER PRIMARY KEY,     -- stands for the schedule while the process runs
    stream INTEGER NOT NULL,    -- streams.number
    subject TEXT NOT NULL,      -- of the schedule message: it is its name
    sequence INTEGER NOT NULL,  -- of the schedule message in the stream
    stored_at INTEGER NOT NULL, -- when that was stored
    kind TEXT NOT NULL,         -- at, every or cron
    target TEXT NOT NULL,       -- where its fires are stored
    zone TEXT,                  -- the time zone of its pattern, NULL for UTC
    headers BLOB NOT NULL,      -- the headers that say what it is
    fire_time INTEGER NOT NULL, -- the time that its next fire stands for
    wake INTEGER NOT NULL,      -- when it is looked at next, some time before its fire is sent
    expires INTEGER,            -- when its TTL runs out; -1: its TTL is `never`; NULL: it has none
    mark INTEGER NOT NULL,      -- what is known of its body, 0 for nothing
    ending TEXT,                -- set if it is done and still to be purged: how it ended
    history TEXT,               -- what policies need to know of its earlier fires, as JSON; NULL: nothing
    unfired_since INTEGER,      -- what it was to fire first, if it is stored again and again before that; else NULL
    checksum INTEGER NOT NULL   -- of the columns above, without id and stream
);
CREATE UNIQUE INDEX schedules_by_subject ON schedules (stream, subject);
CREATE INDEX schedules_by_wake ON schedules (stream, wake);
CREATE INDEX schedules_done ON schedules (stream) WHERE ending IS NOT NULL;
CREATE INDEX schedules_with_history ON schedules (stream) WHERE history IS NOT NULL;
