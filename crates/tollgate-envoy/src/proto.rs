//! The messages of Envoy's API, made of `proto/` by `cargo xtask protos`.

#![allow(
    clippy::doc_markdown,
    clippy::enum_variant_names,
    clippy::missing_const_for_fn,
    clippy::use_self,
    missing_docs,
    unused_qualifications,
    reason = "the code is generated"
)]

macro_rules! package {
    ($file:literal) => {
        include!(concat!("generated/", $file, ".rs"));
    };
}

pub mod envoy {
    pub mod config {
        pub mod core {
            pub mod v3 {
                package!("envoy.config.core.v3");
            }
        }
    }
    pub mod extensions {
        pub mod common {
            pub mod ratelimit {
                pub mod v3 {
                    package!("envoy.extensions.common.ratelimit.v3");
                }
            }
        }
    }
    pub mod service {
        pub mod ratelimit {
            pub mod v3 {
                package!("envoy.service.ratelimit.v3");
            }
        }
    }
    pub mod r#type {
        pub mod v3 {
            package!("envoy.r#type.v3");
        }
    }
}

pub use self::envoy::config::core::v3::HeaderValue;
pub use self::envoy::extensions::common::ratelimit::v3::{
    RateLimitDescriptor, rate_limit_descriptor,
};
pub use self::envoy::service::ratelimit::v3::{
    RateLimitRequest, RateLimitResponse, rate_limit_response, rate_limit_service_client,
    rate_limit_service_server,
};
pub use self::envoy::r#type::v3::RateLimitUnit;

/// The files that these messages were made of, as gRPC reflection tells them.
pub const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.bin");
