//! Compiles the Asio peer where Asio is, Debian's libasio-dev; without it there is one peer less.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(asio)");
    println!("cargo::rerun-if-changed=src/schedulers/asio.cpp");
    // Installed later, it is noticed: as long as it is not there, cargo asks again in each build.
    println!("cargo::rerun-if-changed=/usr/include/asio.hpp");
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        .opt_level(3)
        .warnings(false)
        .cargo_warnings(false)
        .file("src/schedulers/asio.cpp");
    // Nothing tells the header missing from a compiler missing, nor needs to.
    if build.try_compile("mely_bench_asio").is_ok() {
        println!("cargo::rustc-cfg=asio");
    }
}
