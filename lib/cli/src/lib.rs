//! What every tool shares: reading documents, writing results, errors, exit codes, progress, manual pages.
