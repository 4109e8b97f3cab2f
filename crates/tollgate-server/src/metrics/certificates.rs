//! `tollgate_tls_*`: the certificates of the listeners.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use crate::tls::ListenerTls;

/// The certificates in use, read when they are asked for.
#[derive(Debug)]
pub(crate) struct Certificates(pub(crate) Vec<Arc<ListenerTls>>);

impl Collector for Certificates {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let mut expiry = encoder.encode_descriptor(
            "tls_certificate_expiry_timestamp_seconds",
            "When the certificate of the listener expires.",
            None,
            MetricType::Gauge,
        )?;
        for tls in &self.0 {
            if let Some(seconds) = tls.expiry() {
                let labels = [("listener", tls.listener())];
                ConstGauge::new(seconds).encode(expiry.encode_family(&labels)?)?;
            }
        }
        let mut stale = encoder.encode_descriptor(
            "tls_certificate_stale",
            "Whether the listener's files have a certificate that cannot be used in place of the \
             one in use.",
            None,
            MetricType::Gauge,
        )?;
        for tls in &self.0 {
            let labels = [("listener", tls.listener())];
            ConstGauge::new(i64::from(tls.is_stale())).encode(stale.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
