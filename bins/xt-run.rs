//! xt-run
fn main() {}
