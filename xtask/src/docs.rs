//! The pages that are made from the code.

use crate::{setup, step};

/// Lets the test that compares `docs/metrics.md` with the service write it.
pub(crate) fn run() -> Result<(), String> {
    setup::run()?;
    let mut command = step::cargo();
    command.args(["test", "--locked", "--package", "tollgate-server", "--test", "service"]);
    step::run(command.args(["the_page_of_metrics"]).env("BLESS", "1"))
}
