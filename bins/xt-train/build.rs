//! How the worker finds libtorch: in lib/ beside itself (installed, and inside the sandbox), else where it was built.
//!
//! libtorch_cpu.so looks for what it needs in ../../nvidia/*/lib first, before its own folder and LD_LIBRARY_PATH, so a
//! file planted there would be loaded. The loader loads what the program itself names before it looks at the needs of a
//! library, and never loads a name twice: the worker names everything that libtorch needs, and that search never happens.

use std::env;
use std::path::Path;

const BUNDLED: [&str; 3] = ["libgomp.so.1", "libcudart.so.13", "libcupti.so.13"];
const SYSTEM: [&str; 5] = ["librt.so.1", "libdl.so.2", "libpthread.so.0", "libm.so.6", "libutil.so.1"];

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let Ok(lib) = env::var("DEP_XT_TORCH_LIBTORCH_LIB") else {
        println!("cargo::error=xt-torch does not say where libtorch is");
        return;
    };
    // DT_RPATH, not DT_RUNPATH: LD_LIBRARY_PATH comes after it.
    link("-Wl,--disable-new-dtags,-rpath,$ORIGIN/lib");
    if env::var("PROFILE").as_deref() == Ok("debug") {
        link(&format!("-Wl,-rpath,{lib}"));
    }
    link("-Wl,--no-as-needed");
    let bundled = BUNDLED.iter().filter(|name| Path::new(&lib).join(name).exists()); // the CPU build has no cudart
    bundled.chain(&SYSTEM).for_each(|name| link(&format!("-l:{name}")));
}

fn link(argument: &str) {
    println!("cargo::rustc-link-arg={argument}");
}
