//! Open-loop loads, by `tollgate bench`.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde::Deserialize;
use tollgate_bench::Error;

/// A load whose requests are sent when they are due.
#[derive(Debug)]
pub(crate) struct OpenLoop {
    child: Child,
}

/// What came of it.
#[derive(Debug, Deserialize)]
pub(crate) struct Report {
    pub(crate) offered_per_second: f64,
    pub(crate) achieved_per_second: f64,
    pub(crate) errors: u64,
    pub(crate) latency_us: Latency,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Latency {
    pub(crate) p50: u64,
    pub(crate) p99: u64,
    #[serde(rename = "p99.9")]
    pub(crate) p99_9: u64,
}

impl OpenLoop {
    /// Begins to ask what is at `url` for 100,000 random keys.
    pub(crate) fn start(
        tollgate: &Path,
        url: &str,
        rate: u64,
        connections: usize,
        duration: Duration,
    ) -> Result<Self, Error> {
        let child = Command::new(tollgate)
            .args(["bench", url, "path=/login", "method=POST", "--json", "-"])
            .args(["--rate", &rate.to_string(), "--connections", &connections.to_string()])
            .args(["--duration", &format!("{}s", duration.as_secs())])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let child = child.map_err(|error| format!("{}: {error}", tollgate.display()))?;
        Ok(Self { child })
    }

    /// Waits until all is answered.
    pub(crate) fn ended(self) -> Result<Report, Error> {
        let output = self.child.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        let report: Report = serde_json::from_slice(&output.stdout)
            .map_err(|error| format!("the load could not be put on: {error}\n{said}"))?;
        if report.errors > 0 {
            eprintln!("{said}");
        }
        Ok(report)
    }
}
