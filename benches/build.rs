//! Compiles the Asio peers where Asio is, Debian's libasio-dev; without it they are left out.

/// Strands, and a server.
const FILES: [&str; 2] = ["src/schedulers/asio.cpp", "src/response/peers/asio.cpp"];

fn main() {
    println!("cargo::rustc-check-cfg=cfg(asio)");
    for file in FILES {
        println!("cargo::rerun-if-changed={file}");
    }
    // Installed later, it is noticed: as long as it is not there, cargo asks again in each build.
    println!("cargo::rerun-if-changed=/usr/include/asio.hpp");
    let mut build = cc::Build::new();
    build
        .cpp(true)
        .std("c++17")
        .opt_level(3)
        .warnings(false)
        .cargo_warnings(false)
        .files(FILES);
    // Nothing tells the header missing from a compiler missing, nor needs to.
    if build.try_compile("mely_bench_asio").is_ok() {
        println!("cargo::rustc-cfg=asio");
    }
}
