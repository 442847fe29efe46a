//! Records where libtorch lies, so that `bella` runs without environment variables, and which sources it was built from.
//! Compiles the C++ files, with the compiler and the headers that torch-sys needs as well.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The variables that choose the C++ compiler and its flags.
const COMPILER: [&str; 2] = ["CXX", "CXXFLAGS"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Asked of git, since `.git` is a file in a linked worktree. A file that does not exist would make every build start here.
    for part in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--git-path", part]).filter(|path| Path::new(path).is_file()) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    println!("cargo:rerun-if-env-changed=DEP_TCH_LIBTORCH_LIB");
    let folder = std::env::var("DEP_TCH_LIBTORCH_LIB").unwrap_or_default();
    compile(Path::new(&folder));
    println!("cargo:rustc-link-arg=-Wl,-rpath,{folder}");
    println!("cargo:rustc-env=BELLA_LIBTORCH_VERSION={}", version(Path::new(&folder)));
    println!("cargo:rustc-env=BELLA_COMMIT={}", commit());
}

/// Compiles the C++ against the headers of libtorch. A new commit alone starts this script too: what is compiled from the same
/// sources and headers is kept then, since it takes half a minute.
fn compile(lib: &Path) {
    /// The file that is compiled, which includes the others.
    const SOURCE: &str = "src/machine/libtorch.cpp";
    const INCLUDED: [&str; 9] = [
        "src/machine/calls.h",
        "src/machine/fused/fused.cpp",
        "src/machine/fused/rows.h",
        "src/machine/gpu_memory.cpp",
        "src/machine/linear_kernels.cpp",
        "src/machine/packed.cpp",
        "src/machine/products.h",
        "src/machine/quantised/quantised.cpp",
        "src/machine/workers.cpp",
    ];
    const ROWS: &str = "src/machine/fused/rows.cpp";
    const OWN: &str = "build.rs"; // the compiler's flags
    const LIBRARY: &str = "bella_libtorch";
    println!("cargo:rerun-if-env-changed=LIBTORCH_INCLUDE");
    COMPILER.iter().for_each(|name| println!("cargo:rerun-if-env-changed={name}"));
    let read: Vec<&str> = INCLUDED.into_iter().chain([SOURCE, ROWS, OWN]).collect();
    read.iter().for_each(|source| println!("cargo:rerun-if-changed={source}"));
    let include = std::env::var_os("LIBTORCH_INCLUDE").map_or(lib.join(".."), PathBuf::from).join("include");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default());
    let (stamp, made_of) = (out.join("compiled_from"), inputs(&read, &include));
    if std::fs::read(&stamp).is_ok_and(|known| known == made_of) && out.join(format!("lib{LIBRARY}.a")).is_file() {
        println!("cargo:rustc-link-search=native={}", out.display());
        println!("cargo:rustc-link-lib=static={LIBRARY}");
        println!("cargo:rustc-link-lib={}", if cfg!(target_os = "macos") { "c++" } else { "stdc++" });
    } else {
        let mut build = cc::Build::new();
        // Optimised in every profile: the loops of quantised weights would take ten times as long.
        build.cpp(true).opt_level(3).std("c++17").warnings(false).file(SOURCE).objects(rows(ROWS));
        build.include(&include).include(include.join("torch/csrc/api/include")).compile(LIBRARY);
        let _ = std::fs::write(&stamp, made_of); // without it, the next build compiles again
    }
    println!("cargo:rustc-link-search=native={}", lib.display());
    println!("cargo:rustc-link-lib=torch_cpu");
    println!("cargo:rustc-link-lib=c10");
}

/// Compiles the loops over rows once for each set of instructions that the processor may have; they are chosen when the program runs.
/// They are optimised in every profile, since a loop that is not is slower than libtorch's.
fn rows(source: &str) -> Vec<PathBuf> {
    const AVX512: [&str; 5] = ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma"];
    let mut sets: Vec<(&str, &[&str])> = vec![("plain", &[])];
    if std::env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|arch| arch == "x86_64") {
        sets.extend([("avx2", &["-mavx2", "-mfma"][..]), ("avx512", &AVX512[..])]);
    }
    let compiled = sets.into_iter().flat_map(|(name, flags)| {
        let mut build = cc::Build::new();
        build.cpp(true).std("c++17").warnings(false).opt_level(3).file(source);
        build.define("BELLA_ROWS", format!("bella_rows_{name}").as_str());
        // Without it, GCC makes no vectors of loops that compare numbers, unless the instructions have masks.
        build.flag_if_supported("-fno-trapping-math");
        flags.iter().for_each(|flag| {
            build.flag(flag);
        });
        // Each set has a folder of its own, since an object is named after its source.
        let out = PathBuf::from(std::env::var_os("OUT_DIR").unwrap_or_default()).join(name);
        build.out_dir(out).compile_intermediates()
    });
    compiled.collect()
}

/// Everything that the compiled files depend on, as bytes to compare.
fn inputs(sources: &[&str], include: &Path) -> Vec<u8> {
    let variables = ["TARGET", "OPT_LEVEL", "DEBUG", "PROFILE"].iter().chain(&COMPILER);
    let variables: Vec<String> = variables.map(|name| std::env::var(name).unwrap_or_default()).collect();
    let mut all = format!("{}\n{}\n", include.display(), variables.join("\n")).into_bytes();
    let headers = include.join("torch/headeronly/version.h").display().to_string();
    for file in sources.iter().copied().chain([headers.as_str()]) {
        all.extend(std::fs::read(file).unwrap_or_default());
    }
    all
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
    git(&["describe", "--always", "--dirty", "--exclude=*"]).unwrap_or("unknown".into())
}

/// What git prints, or `None` outside a checkout.
fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_string())
}
