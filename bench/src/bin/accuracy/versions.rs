//! The versions that were built, from the lock file.

const LOCK: &str = include_str!("../../../Cargo.lock");

/// Returns the version of a package that the lock file holds once.
pub(crate) fn of(package: &str) -> &'static str {
    let after_name = LOCK.split_once(&format!("\nname = \"{package}\"\nversion = \""));
    let version = after_name.and_then(|(_, rest)| rest.split_once('"'));
    version.map_or("unknown version", |(version, _)| version)
}

#[cfg(test)]
mod tests {
    #[test]
    fn versions_are_those_of_the_lock_file() {
        assert!(super::of("governor").starts_with("0.10."));
        assert_eq!(super::of("tollgate"), "0.1.0");
        assert_eq!(super::of("absent"), "unknown version");
    }
}
