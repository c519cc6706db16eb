//! Content-addressed directory store: packs, refs, leases, archives, quarantine.
