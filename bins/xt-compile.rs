//! xt-compile
fn main() {}
