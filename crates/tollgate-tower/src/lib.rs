//! Tollgate as a tower layer.

pub mod client_ip;
pub mod headers;

pub use ipnet::IpNet;

pub use crate::client_ip::ClientIp;
