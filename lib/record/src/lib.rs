//! What happened: states, events, operations and leases in SQLite.
