//! Every seed, through the function that its fuzz target calls.

use std::fs;
use std::path::Path;

use tollgate_fuzz::TARGETS;

#[test]
fn every_seed_of_every_target_holds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    for (name, check) in TARGETS {
        let mut seeds = 0;
        for file in fs::read_dir(folder.join(name)).unwrap() {
            let path = file.unwrap().path();
            println!("{}", path.display());
            check(&fs::read(&path).unwrap());
            seeds += 1;
        }
        assert!(seeds >= 3, "{name} has {seeds} seeds");
    }
}

#[test]
fn every_folder_of_seeds_has_a_target() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    for file in fs::read_dir(folder).unwrap() {
        let name = file.unwrap().file_name();
        assert!(TARGETS.iter().any(|(target, _)| name == *target), "{}", name.display());
    }
}
