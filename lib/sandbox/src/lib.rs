//! Isolation of the trainer, and the evidence for it.
