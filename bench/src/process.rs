//! A service in a process of its own, whose processor time and memory are its own too.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::Error;
use crate::service::Ports;

/// A running service, ended when it is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    ports: Ports,
}

impl Process {
    /// Starts this program again as the service that `words` name; see
    /// [`service::run_if_asked`](crate::service::run_if_asked).
    ///
    /// # Errors
    ///
    /// The service does not start.
    pub fn start(words: &[&str]) -> Result<Self, Error> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(crate::service::WORD)
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let output = child.stdout.take().ok_or("the output of a service cannot be read")?;
        BufReader::new(output).read_line(&mut line)?;
        let Some(ports) = Ports::parse(line.trim()) else {
            let _ = child.kill();
            return Err(format!("the service {words:?} does not start").into());
        };
        Ok(Self { child, ports })
    }

    /// Returns where the service listens.
    pub const fn ports(&self) -> Ports {
        self.ports
    }

    /// Returns the time of a processor that the threads of the service have had.
    ///
    /// # Errors
    ///
    /// The system does not tell.
    pub fn cpu_time(&self) -> Result<Duration, Error> {
        let mut nanos = 0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let told = fs::read_to_string(thread?.path().join("schedstat"))?;
            let running = told.split_whitespace().next().ok_or("no time in schedstat")?;
            nanos += running.parse::<u64>()?;
        }
        Ok(Duration::from_nanos(nanos))
    }

    /// Returns the bytes of memory that the service holds.
    ///
    /// # Errors
    ///
    /// The system does not tell.
    pub fn resident_bytes(&self) -> Result<u64, Error> {
        resident_bytes(&self.child.id().to_string())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the bytes of memory that a process holds, or this one, `self`.
///
/// # Errors
///
/// The system does not tell.
pub fn resident_bytes(process: &str) -> Result<u64, Error> {
    let status = fs::read_to_string(format!("/proc/{process}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).ok_or("no VmRSS")?;
    Ok(kib.trim().parse::<u64>()? * 1_024)
}
