"""The files under `deploy/`, checked by whatever can check them here."""
