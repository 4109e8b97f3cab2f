//! What stands in the place of traces in a build without them.

use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use prometheus_client::collector::Collector;
use tollgate::{CheckError, Verdict};
use tollgate_config::TracingConfig;

use crate::error::ServeError;

/// There is none.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tracer {}

/// There is nothing to send.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Exporting {}

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
    pub(crate) async fn http(&self, _: &'static str, _: Request, _: Next) -> Response {
        match *self {}
    }

    pub(crate) async fn grpc(&self, _: Request, _: Next) -> Response {
        match *self {}
    }

    pub(crate) fn metrics(&self) -> Box<dyn Collector> {
        match *self {}
    }

    pub(crate) fn note(&self, _: Result<&Verdict, &CheckError>) {
        match *self {}
    }

    pub(crate) fn note_first(&self, _: Result<&Verdict, &CheckError>) {
        match *self {}
    }

    pub(crate) fn note_denied(&self, _: bool) {
        match *self {}
    }
}

impl Exporting {
    pub(crate) async fn run(self, _: impl Future<Output = ()>) {
        match self {}
    }
}
