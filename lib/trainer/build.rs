//! Tells this crate's tests where libtorch lies.

use std::env;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if let Ok(lib) = env::var("DEP_XT_TORCH_LIBTORCH_LIB") {
        println!("cargo::rustc-link-arg=-Wl,--disable-new-dtags,-rpath,{lib}");
    }
}
