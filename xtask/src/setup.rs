//! Installs what the tests need and Rust does not bring.

use std::path::Path;
use std::process::Command;

use crate::step;

/// A program and the Debian package that holds it.
struct Tool {
    program: &'static str,
    package: &'static str,
}

const TOOLS: [Tool; 2] = [
    Tool { program: "redis-server", package: "redis-server" },
    Tool { program: "nginx", package: "nginx-light" },
];

/// Debian keeps servers where a plain user's `PATH` may not lead.
const MORE_PLACES: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

pub(crate) fn run() -> Result<(), String> {
    let missing: Vec<_> = TOOLS.iter().filter(|tool| !is_installed(tool.program)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages: Vec<_> = missing.iter().map(|tool| tool.package).collect();
    let by_hand = format!(
        "the tests need {}: install the Debian packages by\n  \
         sudo apt-get update && sudo apt-get install -y {}\n\
         or put the programs into PATH by other means",
        missing.iter().map(|tool| tool.program).collect::<Vec<_>>().join(" and "),
        packages.join(" ")
    );
    if !is_installed("apt-get") || !is_root() {
        return Err(by_hand);
    }
    let apt = |arguments: &[&str]| {
        let mut command = Command::new("apt-get");
        // A package that starts its service would leave a shared redis-server on the machine.
        command.env("DEBIAN_FRONTEND", "noninteractive").env("RUNLEVEL", "1").args(arguments);
        step::run(&mut command).map_err(|error| format!("{error}\n{by_hand}"))
    };
    apt(&["update", "-q"])?;
    let mut install = vec!["install", "-q", "-y", "--no-install-recommends"];
    install.extend(&packages);
    apt(&install)?;
    match TOOLS.iter().find(|tool| !is_installed(tool.program)) {
        None => Ok(()),
        Some(tool) => Err(format!("{} is still missing after apt-get install", tool.program)),
    }
}

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(MORE_PLACES.iter().map(|place| Path::new(place).to_owned()))
        .any(|place| place.join(program).is_file())
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
}
