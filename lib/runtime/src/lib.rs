//! Launch, observe, cancel: how a plan becomes a supervised workload.
