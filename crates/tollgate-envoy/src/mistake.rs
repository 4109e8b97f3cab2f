//! Requests that cannot be judged.

use std::fmt;

use tollgate::{Charge, CheckError};

/// What is wrong with a request. The text is for whoever configures Envoy.
#[derive(Debug)]
pub(crate) struct Mistake(String);

impl Mistake {
    pub(crate) fn no_domain() -> Self {
        Self("domain is empty: set `domain` in Envoy's rate limit filter".to_owned())
    }

    pub(crate) fn no_descriptors() -> Self {
        Self("there are no descriptors: a request needs at least one".to_owned())
    }

    pub(crate) fn too_many_descriptors(count: usize, most: usize) -> Self {
        Self(format!("there are {count} descriptors: the most is {most}"))
    }

    pub(crate) fn too_many_entries(index: usize, count: usize, most: usize) -> Self {
        Self(format!("descriptors[{index}] has {count} entries: the most is {most}"))
    }

    pub(crate) fn no_unit(index: usize) -> Self {
        Self(format!(
            "descriptors[{index}].limit has no unit: give SECOND, MINUTE, HOUR, DAY, MONTH or YEAR"
        ))
    }

    pub(crate) fn too_many_buckets(count: usize) -> Self {
        Self(format!(
            "the descriptors are charged to {count} buckets: the most is {}",
            Charge::COUNT_MAX
        ))
    }

    /// Tells why a request cannot be charged.
    pub(crate) fn of(error: &CheckError) -> Self {
        Self(match error.attribute() {
            Some(attribute) => format!(
                "the entry {attribute:?} of a descriptor tells the cost and must be a whole number"
            ),
            None => "the request cannot be charged to its limits".to_owned(),
        })
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
