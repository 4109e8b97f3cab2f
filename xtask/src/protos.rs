//! The Rust that is made of `crates/tollgate-envoy/proto`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::step;

const GENERATED: &str = "crates/tollgate-envoy/src/generated";

/// Makes the files anew.
pub(crate) fn run() -> Result<(), String> {
    generate(Path::new(GENERATED))
}

/// Fails if the committed files are not what would be made now.
pub(crate) fn check() -> Result<(), String> {
    let fresh = Path::new("target/protos/generated");
    generate(fresh)?;
    let (committed, made) = (files(Path::new(GENERATED))?, files(fresh)?);
    if committed == made {
        return Ok(());
    }
    Err(format!("{GENERATED} is not what its protos give: run `cargo xtask protos`"))
}

/// The generator is a workspace of its own, so that what it needs is nobody else's dependency.
fn generate(out: &Path) -> Result<(), String> {
    let mut command = step::cargo();
    command
        .args(["run", "--quiet", "--locked", "--manifest-path", "xtask/protos/Cargo.toml"])
        .args(["--target-dir", "target/protos", "--"])
        .arg(out);
    step::run(&mut command)
}

fn files(directory: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>, String> {
    let shown = directory.display();
    let entries = fs::read_dir(directory).map_err(|error| format!("{shown}: {error}"))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| format!("{shown}: {error}"))?.path();
        let content = fs::read(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        files.push((path.file_name().map(PathBuf::from).unwrap_or_default(), content));
    }
    files.sort();
    Ok(files)
}
