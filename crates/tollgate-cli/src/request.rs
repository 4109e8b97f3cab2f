//! What a command is asked about, and whom it asks.

use std::path::Path;

use tollgate::{Attributes, Limiter};
use tollgate_config::{Config, StoreConfig};

use crate::args::Request;
use crate::{configuration, console};

/// A limiter, and the request to ask it about.
pub(crate) struct Question {
    pub(crate) limiter: Limiter,
    pub(crate) attributes: Attributes,
    /// Whether no other process shares the buckets.
    pub(crate) is_alone: bool,
}

/// A limiter on the store of a configuration.
pub(crate) struct Connected {
    pub(crate) limiter: Limiter,
    /// Whether no other process shares the buckets.
    pub(crate) is_alone: bool,
}

/// Reads the configuration and connects to the store. What is wrong is printed.
pub(crate) async fn prepare(args: Request) -> Option<Question> {
    let config = configuration::read(args.config.as_deref())?;
    let mut attributes = Attributes::new().with_domain(args.domain);
    for (name, value) in args.attributes {
        if attributes.value(&name).is_some() {
            console::explain(&format!("error: attribute {name} is given twice: give it once\n"));
            return None;
        }
        attributes.insert(name, value);
    }
    let Connected { limiter, is_alone } = connected(&config).await?;
    Some(Question { limiter, attributes, is_alone })
}

/// Reads the configuration and connects to the store. What is wrong is printed.
pub(crate) async fn connect(file: Option<&Path>) -> Option<Connected> {
    connected(&configuration::read(file)?).await
}

async fn connected(config: &Config) -> Option<Connected> {
    let is_alone = matches!(config.store, StoreConfig::Memory { .. });
    match tollgate_server::connect(config).await {
        Ok(limiter) => Some(Connected { limiter, is_alone }),
        Err(error) => {
            console::explain(&format!("error: {error}\n"));
            None
        }
    }
}
