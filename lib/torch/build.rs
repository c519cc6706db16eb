//! Compiles the shim against the headers that torch-sys was built with, and passes the folder of the libraries on.
//!
//! torch-sys tells its direct dependents that folder as DEP_TCH_LIBTORCH_LIB, so the two can never disagree.

use std::env;
use std::path::PathBuf;

fn main() {
    let lib = PathBuf::from(env::var("DEP_TCH_LIBTORCH_LIB").expect("torch-sys passes on where libtorch is"));
    let include = lib.parent().expect("lib/ is in a folder").join("include");
    cc::Build::new()
        .cpp(true)
        .std("c++17") // as torch-sys
        .define("_GLIBCXX_USE_CXX11_ABI", "1")
        .flag("-isystem") // their headers do not pass -Wall
        .flag(&include)
        .flag("-isystem")
        .flag(include.join("torch/csrc/api/include"))
        .flag("-Wextra")
        .opt_level(2) // also in a dev build
        .debug(false)
        .files(["csrc/shim.cpp", "csrc/module.cpp"])
        .compile("xt_torch_shim");
    println!("cargo::rerun-if-changed=csrc");
    println!("cargo::metadata=LIBTORCH_LIB={}", lib.display());
    println!("cargo::rustc-link-arg=-Wl,--disable-new-dtags,-rpath,{}", lib.display()); // this crate's tests
}
