//! xt-freeze
fn main() {}
