//! Makes the Rust of `crates/tollgate-envoy/proto`; run by `cargo xtask protos`.
//!
//! The one argument is the directory that the files are written to.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use prost::Message;

const SERVICE: &str = "envoy/service/ratelimit/v3/rls.proto";

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(std::env::args_os().nth(1).ok_or("name the directory to write to")?);
    let protos = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/tollgate-envoy/proto");
    let mut compiler = protox::Compiler::new([protos])?;
    compiler.include_imports(true).include_source_info(true).open_file(SERVICE)?;
    let described = compiler.file_descriptor_set();
    fs::create_dir_all(&out)?;
    tonic_prost_build::configure()
        .build_transport(false)
        .bytes(".")
        .out_dir(&out)
        .emit_rerun_if_changed(false)
        .compile_fds(described)?;
    // What gRPC reflection tells needs no comments.
    let described = compiler.include_source_info(false).file_descriptor_set();
    fs::write(out.join("descriptors.bin"), described.encode_to_vec())?;
    Ok(())
}
