"""Which instance owns a stream, which ones stand by, and what a takeover continues with."""
