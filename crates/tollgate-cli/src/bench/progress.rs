//! How far a load has come, for whoever watches.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::{MissedTickBehavior, interval};

/// How often the line of progress is drawn.
const INTERVAL: Duration = Duration::from_millis(200);

/// The state of a load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    pub(super) answered: u64,
    pub(super) denied: u64,
    pub(super) failed: u64,
    pub(super) goes_on: bool,
}

pub(super) fn bar(count: u64) -> ProgressBar {
    let bar = ProgressBar::new(count);
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {percent:>3} %  {msg}") {
        bar.set_style(style);
    }
    bar
}

/// Draws the state of a load until it goes on no more.
pub(super) async fn show(bar: &ProgressBar, state: impl Fn() -> Progress) {
    let mut ticks = interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut before = 0;
    loop {
        ticks.tick().await;
        let Progress { answered, denied, failed, goes_on } = state();
        bar.set_position(answered);
        let a_second = (answered - before) * 1_000 / INTERVAL.as_millis().max(1) as u64;
        bar.set_message(format!("{a_second}/s, {denied} denied, {failed} errors"));
        before = answered;
        if !goes_on {
            break;
        }
    }
}
