//! xt-log
fn main() {}
