//! Writes the Lua script to the standard output, to be run by hand: see `lua/README.md`.

use std::io::{self, Write};

fn main() -> io::Result<()> {
    io::stdout().write_all(tollgate_redis::SCRIPT.as_bytes())
}
