//! What a machine can judge without running the product.

use crate::{protos, step};

pub(crate) fn run() -> Result<(), String> {
    step::run(step::cargo().args(["fmt", "--all", "--", "--check"]))?;
    step::run(
        step::cargo()
            .args(["clippy", "--workspace", "--all-targets", "--locked"])
            .args(["--", "-D", "warnings"]),
    )?;
    step::run(
        step::cargo()
            .args(["clippy", "--package", "tollgate-cli", "--no-default-features", "--all-targets"])
            .args(["--locked", "--", "-D", "warnings"]),
    )?;
    step::run(step::cargo().args([
        "fmt",
        "--manifest-path",
        "xtask/protos/Cargo.toml",
        "--check",
    ]))?;
    // Only formatted: to build what it compares with takes minutes.
    step::run(step::cargo().args(["fmt", "--manifest-path", "bench/Cargo.toml", "--check"]))?;
    protos::check()?;
    let fuzz = ["--manifest-path", "fuzz/Cargo.toml"];
    step::run(step::cargo().arg("fmt").args(fuzz).args(["--", "--check"]))?;
    step::run(step::cargo().arg("clippy").args(fuzz).args([
        "--target-dir",
        "target",
        "--all-targets",
        "--",
        "-D",
        "warnings",
    ]))?;
    let mut doc = step::cargo();
    doc.args(["doc", "--workspace", "--no-deps", "--locked", "--quiet"]);
    step::run(doc.env("RUSTDOCFLAGS", "-D warnings"))
}
