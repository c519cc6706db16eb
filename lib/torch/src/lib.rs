//! A C++ shim over libtorch for what tch does not expose.
