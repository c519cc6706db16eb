//! xt-replay
fn main() {}
