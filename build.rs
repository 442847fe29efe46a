//! Records where libtorch lies, so that `bella` runs without environment variables, and which sources it was built from.
//! Compiles the C++ files, with the compiler and the headers that torch-sys needs as well.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=.git/HEAD");
    println!("cargo:rerun-if-changed=.git/refs/heads");
    println!("cargo:rerun-if-env-changed=DEP_TCH_LIBTORCH_LIB");
    let folder = std::env::var("DEP_TCH_LIBTORCH_LIB").unwrap_or_default();
    compile(Path::new(&folder));
    println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    println!("cargo:rustc-env=BELLA_LIBTORCH_VERSION={}", version(Path::new(&folder)));
    println!("cargo:rustc-env=BELLA_COMMIT={}", commit());
}

/// Compiles the C++ files against the headers of libtorch.
fn compile(lib: &Path) {
    const SOURCES: [&str; 2] = ["src/machine/gpu_memory.cpp", "src/machine/products.cpp"];
    println!("cargo:rerun-if-env-changed=LIBTORCH_INCLUDE");
    SOURCES.iter().for_each(|source| println!("cargo:rerun-if-changed={source}"));
    let include = std::env::var_os("LIBTORCH_INCLUDE").map_or(lib.join(".."), PathBuf::from).join("include");
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").warnings(false).files(SOURCES);
    build.include(&include).include(include.join("torch/csrc/api/include")).compile("bella_libtorch");
    println!("cargo:rustc-link-search=native={}", lib.display());
    println!("cargo:rustc-link-lib=torch_cpu");
    println!("cargo:rustc-link-lib=c10");
}

/// From a wheel's `version.py` or a distribution's `build-version`.
fn version(folder: &Path) -> String {
    let read = |name: &str| std::fs::read_to_string(folder.join("..").join(name)).ok();
    let wheel = read("version.py").and_then(|text| {
        let line = text.lines().find(|line| line.starts_with("__version__"))?.to_string();
        Some(line.split('\'').nth(1)?.to_string())
    });
    wheel.or(read("build-version").map(|text| text.trim().to_string())).unwrap_or("unknown".into())
}

fn commit() -> String {
    let output = Command::new("git").args(["describe", "--always", "--dirty", "--exclude=*"]).output();
    let text = output.ok().filter(|o| o.status.success()).and_then(|o| String::from_utf8(o.stdout).ok());
    text.map_or("unknown".into(), |text| text.trim().to_string())
}
