//! What must hold for any input, one module for each parser of Tollgate.
//!
//! Each module has a function `check`, which panics if something does not hold. The fuzz targets
//! call it with what they invent, and a test calls it with every file in `seeds/`: what was found
//! once stays found.

pub mod api;
pub mod config;
pub mod envoy_limits;
pub mod envoy_request;
pub mod hold;
pub mod key;
pub mod rate;
pub mod reply;
pub mod timeline;

/// A function that panics if something does not hold for an input.
pub type Check = fn(&[u8]);

/// The targets by their names, which are also those of the folders of their seeds.
pub const TARGETS: [(&str, Check); 9] = [
    ("api", api::check),
    ("config", config::check),
    ("envoy_limits", envoy_limits::check),
    ("envoy_request", envoy_request::check),
    ("hold", hold::check),
    ("key", key::check),
    ("rate", rate::check),
    ("reply", reply::check),
    ("timeline", timeline::check),
];
