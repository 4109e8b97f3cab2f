//! What stands in the place of traces in a build without them.

use std::fmt;

use ::http::{HeaderMap, Method, Response};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use tollgate::{CheckError, Verdict};
use tollgate_config::TracingConfig;

use crate::error::ServeError;

/// There is none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tracer(Nothing);

/// There is nothing to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exporting(Nothing);

/// Nothing is traced.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Span(Nothing);

#[derive(Clone, Copy, Debug)]
enum Nothing {}

/// Refuses a configuration that asks for traces.
pub(crate) fn tracer(
    config: &TracingConfig,
    _: &'static str,
) -> Result<Option<(Tracer, Exporting)>, ServeError> {
    match config.otlp {
        None => Ok(None),
        Some(_) => Err(ServeError::traces(
            "this binary was built without the feature `otlp`: take one that has it, or remove \
             the section"
                .to_owned(),
        )),
    }
}

impl Tracer {
    pub(crate) fn http(&self, _: &'static str, _: &Method, _: &HeaderMap) -> Option<Span> {
        match self.0 {}
    }

    pub(crate) fn grpc(&self, _: &HeaderMap) -> Option<Span> {
        match self.0 {}
    }

    pub(crate) fn metrics(&self) -> Self {
        *self
    }

    pub(crate) fn note(&self, _: Result<&Verdict, &CheckError>) {
        match self.0 {}
    }

    pub(crate) fn note_first(&self, _: Result<&Verdict, &CheckError>) {
        match self.0 {}
    }

    pub(crate) fn note_denied(&self, _: bool) {
        match self.0 {}
    }
}

impl Collector for Tracer {
    fn encode(&self, _: DescriptorEncoder<'_>) -> fmt::Result {
        match self.0 {}
    }
}

impl Span {
    pub(crate) async fn answer<B>(self, _: impl Future<Output = Response<B>>) -> Response<B> {
        match self.0 {}
    }
}

impl Exporting {
    pub(crate) async fn run(self, _: impl Future<Output = ()>) {
        match self.0 {}
    }
}
