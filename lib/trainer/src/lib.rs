//! Models, data order, optimisers, schedules, trace: what the worker computes.
