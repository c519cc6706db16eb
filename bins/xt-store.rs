//! xt-store
fn main() {}
