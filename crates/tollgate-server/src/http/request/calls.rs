//! What each call is asked.

use std::ops::RangeInclusive;
use std::time::Duration;

use tollgate::{Attributes, Cost, Hold};

use super::{Call, Fields, Mistake, quick};

/// What `/v1/check`, `/v1/peek` and `/v1/reset` are asked, and most of what others are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ApiRequest {
    pub(crate) attributes: Attributes,
    /// `None` if the body names no cost.
    pub(crate) cost: Option<Cost>,
}

/// What `/v1/acquire` is asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AcquireRequest {
    pub(crate) request: ApiRequest,
    pub(crate) max_wait: Duration,
}

/// What `/v1/renew` and `/v1/release` are asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LeaseRequest {
    pub(crate) lease: Hold,
}

/// What `/v1/reserve` is asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ReserveRequest {
    pub(crate) request: ApiRequest,
    pub(crate) ttl: Duration,
}

/// What `/v1/commit` is asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CommitRequest {
    pub(crate) reservation: Hold,
    pub(crate) cost: Cost,
    /// The real values of attributes that rules take their cost from.
    pub(crate) attributes: Attributes,
}

/// What `/v1/cancel` is asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CancelRequest {
    pub(crate) reservation: Hold,
}

/// What `/v1/refund` is asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RefundRequest {
    pub(crate) request: ApiRequest,
    /// Under which the refund is made once.
    pub(crate) id: Option<String>,
}

const EXAMPLE: &str = r#"{"attributes":{"ip":"203.0.113.7"}}"#;

const LEASE_EXAMPLE: &str = r#"{"lease_id":"..."} with what /v1/acquire answered"#;

const RESERVATION_EXAMPLE: &str = r#"{"reservation_id":"..."} with what /v1/reserve answered"#;

const COMMIT_EXAMPLE: &str =
    r#"{"reservation_id":"...","cost":5} with what /v1/reserve answered and the real cost"#;

/// How long a caller may wait, in milliseconds: one minute.
const WAIT_MS: RangeInclusive<u64> = 0..=60_000;

/// How long a reservation may stand, in milliseconds: one second to one day.
const TTL_MS: RangeInclusive<u64> = 1_000..=86_400_000;

/// How long a reservation stands unless the body says otherwise: one minute.
const TTL_DEFAULT: Duration = Duration::from_secs(60);

/// How long the id of a refund may be, in bytes.
const ID_LEN: RangeInclusive<usize> = 1..=256;

impl Call for ApiRequest {
    const FIELDS: &'static [&'static str] = &["attributes", "cost", "domain"];
    const EXAMPLE: &'static str = EXAMPLE;

    fn read(fields: &Fields<'_>) -> Result<Self, Mistake> {
        Self::of(fields, Fields::attributes)
    }

    fn parse(body: &[u8]) -> Result<Self, Mistake> {
        match quick::read(body) {
            Some(request) => Ok(request),
            None => Self::read(&Fields::of(body, Self::FIELDS, Self::EXAMPLE)?),
        }
    }
}

impl ApiRequest {
    fn of<'f>(
        fields: &Fields<'f>,
        attributes: impl FnOnce(&Fields<'f>, &str) -> Result<Attributes, Mistake>,
    ) -> Result<Self, Mistake> {
        let domain = fields.domain()?;
        let cost = fields.cost()?;
        let mut attributes = attributes(fields, EXAMPLE)?;
        if let Some(domain) = domain {
            attributes = attributes.with_domain(domain);
        }
        Ok(Self { attributes, cost })
    }
}

impl Call for AcquireRequest {
    const FIELDS: &'static [&'static str] = &["attributes", "cost", "domain", "wait_ms"];
    const EXAMPLE: &'static str = EXAMPLE;

    fn read(fields: &Fields<'_>) -> Result<Self, Mistake> {
        let max_wait = fields.duration_ms("wait_ms", WAIT_MS)?.unwrap_or_default();
        Ok(Self { request: ApiRequest::of(fields, Fields::short_attributes)?, max_wait })
    }
}

impl Call for LeaseRequest {
    const FIELDS: &'static [&'static str] = &["lease_id"];
    const EXAMPLE: &'static str = LEASE_EXAMPLE;

    fn read(fields: &Fields<'_>) -> Result<Self, Mistake> {
        Ok(Self { lease: fields.lease("lease_id", Self::EXAMPLE)? })
    }
}

impl Call for ReserveRequest {
    const FIELDS: &'static [&'static str] = &["attributes", "cost", "domain", "ttl_ms"];
    const EXAMPLE: &'static str = EXAMPLE;

    fn read(fields: &Fields<'_>) -> Result<Self, Mistake> {
        let ttl = fields.duration_ms("ttl_ms", TTL_MS)?.unwrap_or(TTL_DEFAULT);
        Ok(Self { request: ApiRequest::of(fields, Fields::short_attributes)?, ttl })
    }
}

impl Call for CommitRequest {
    const FIELDS: &'static [&'static str] = &["attributes", "cost", "reservation_id"];
    const EXAMPLE: &'static str = COMMIT_EXAMPLE;

    fn read(fields: &Fields<'_>) -> Result<Self, Mistake> {
        let cost = fields.cost()?;
        let reservation = fields.reservation("reservation_id", Self::EXAMPLE)?;
        let attributes = match fields.raw("attributes") {
            Some(_) => Some(fields.attributes(Self::EXAMPLE)?),
            None => None,
        };
        // What an attribute tells, the cost need not tell again.
        let cost = cost.or_else(|| attributes.as_ref().map(|_| Cost::ONE));
        let cost = cost.ok_or_else(|| Mistake::missing("cost", Self::EXAMPLE))?;
        Ok(Self { reservation, cost, attributes: attributes.unwrap_or_default() })
    }
}

impl Call for CancelRequest {
    const FIELDS: &'static [&'static str] = &["reservation_id"];
    const EXAMPLE: &'static str = RESERVATION_EXAMPLE;

    fn read(fields: &Fields<'_>) -> Result<Self, Mistake> {
        Ok(Self { reservation: fields.reservation("reservation_id", Self::EXAMPLE)? })
    }
}

impl Call for RefundRequest {
    const FIELDS: &'static [&'static str] = &["attributes", "cost", "domain", "id"];
    const EXAMPLE: &'static str = EXAMPLE;

    fn read(fields: &Fields<'_>) -> Result<Self, Mistake> {
        let id = fields.id("id", ID_LEN)?;
        Ok(Self { request: ApiRequest::read(fields)?, id })
    }
}
