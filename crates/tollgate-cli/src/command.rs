//! The command that `tollgate acquire` runs.

use std::ffi::OsString;
use std::process::ExitStatus;

use tokio::process::{Child, Command};

use crate::signals::{Received, Signals};
use crate::{EXIT_ERROR, console};

/// Runs a command to its end and returns its exit status, 128 and the number of the signal if one
/// ended it. Signals are passed on to it.
pub(crate) async fn run(command: &[OsString], signals: &mut Signals) -> u8 {
    let Some((program, args)) = command.split_first() else { return EXIT_ERROR };
    let mut child = match Command::new(program).args(args).spawn() {
        Ok(child) => child,
        Err(error) => {
            console::explain(&format!("error: cannot run {}: {error}\n", program.display()));
            return EXIT_ERROR;
        }
    };
    loop {
        tokio::select! {
            ended = child.wait() => match ended {
                Ok(status) => return exit_status(status),
                Err(error) => {
                    console::explain(&format!(
                        "error: cannot wait for {}: {error}\n",
                        program.display()
                    ));
                    return EXIT_ERROR;
                }
            },
            signal = signals.next() => pass_on(signal, &child),
        }
    }
}

#[cfg(unix)]
fn exit_status(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;

    let status = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    status.and_then(|status| u8::try_from(status).ok()).unwrap_or(EXIT_ERROR)
}

#[cfg(not(unix))]
fn exit_status(status: ExitStatus) -> u8 {
    status.code().and_then(|status| u8::try_from(status).ok()).unwrap_or(EXIT_ERROR)
}

/// Passes a signal on. An interrupt from the keyboard has reached the command already, since the
/// terminal sends it to all processes in its foreground.
#[cfg(unix)]
fn pass_on(signal: Received, child: &Child) {
    use rustix::process::{Pid, Signal, kill_process};

    let signal = match signal {
        Received::Interrupt if is_in_foreground() => return,
        Received::Interrupt => Signal::INT,
        Received::Terminate => Signal::TERM,
    };
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(pid) = pid {
        // A command that has just ended needs no signal.
        let _ = kill_process(pid, signal);
    }
}

#[cfg(not(unix))]
fn pass_on(_: Received, _: &Child) {}

/// Tells whether the terminal, if there is one, sends its signals to this process.
#[cfg(unix)]
fn is_in_foreground() -> bool {
    let terminal = std::fs::File::open("/dev/tty");
    terminal.is_ok_and(|terminal| {
        rustix::termios::tcgetpgrp(terminal)
            .is_ok_and(|foreground| foreground == rustix::process::getpgrp())
    })
}
