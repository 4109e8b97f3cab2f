//! The plots of `docs/algorithms.md`: what each algorithm makes of the same offered load.

mod drawing;
mod load;
pub(crate) mod svg;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tollgate_core::{Algorithm, Quota, QuotaError, Rate};

use self::load::Admitted;

/// What is plotted of one algorithm.
struct Plot {
    quota: Quota,
    title: &'static str,
    /// What the bars count.
    bars: &'static str,
    /// What the line counts, and how long a request counts in it.
    line: &'static str,
    counts_for: Duration,
    /// What the highest point of the line is.
    peak: &'static str,
}

fn plots() -> Result<[Plot; 6], QuotaError> {
    let rate = Rate::per_second(10)?;
    let admitted = |quota, title| Plot {
        quota,
        title,
        bars: "admitted per 100 ms",
        line: "admitted in the last second",
        counts_for: Duration::from_secs(1),
        peak: "in a second",
    };
    Ok([
        admitted(Quota::new(rate, 10)?, "token bucket, 10/s, burst 10"),
        admitted(
            Quota::sliding_window(rate, Algorithm::CELLS_DEFAULT)?,
            "sliding window, 10/s, 20 cells",
        ),
        admitted(Quota::sliding_log(rate)?, "sliding log, 10/s"),
        admitted(Quota::fixed_window(rate)?, "fixed window, 10/s"),
        Plot {
            bars: "started per 100 ms",
            line: "started in the last second",
            ..admitted(Quota::leaky_bucket(rate, 10)?, "leaky bucket, 10/s, queue of 10")
        },
        Plot {
            line: "in flight",
            counts_for: load::SERVICE_TIME,
            peak: "in flight",
            ..admitted(
                Quota::concurrency(10, Algorithm::LEASE_TTL_DEFAULT)?,
                "concurrency, 10 in flight, 200 ms each",
            )
        },
    ])
}

/// The path and the text of every plot.
fn files() -> Result<Vec<(PathBuf, String)>, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/plots");
    let plots = plots().map_err(|error| error.to_string())?;
    Ok(plots
        .iter()
        .map(|plot| {
            let path = folder.join(format!("{}.svg", plot.quota.algorithm()));
            (path, drawing::draw(plot, &Admitted::of(&plot.quota)))
        })
        .collect())
}

pub(crate) fn run() -> Result<(), String> {
    for (path, text) in files()? {
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        println!("wrote docs/plots/{}", path.file_name().unwrap_or_default().display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_plots_are_those_that_the_algorithms_draw() {
        for (path, text) in files().unwrap() {
            let committed = fs::read_to_string(&path).unwrap();
            assert!(committed == text, "{}: run `cargo xtask plots`", path.display());
        }
    }

    /// The numbers that `docs/algorithms.md` tells of the plots.
    #[test]
    fn every_algorithm_admits_what_the_page_says() {
        let told: Vec<_> = plots()
            .unwrap()
            .iter()
            .map(|plot| {
                let admitted = Admitted::of(&plot.quota);
                (admitted.starts().len(), admitted.peak(plot.counts_for))
            })
            .collect();
        assert_eq!(told, [(50, 19), (40, 10), (42, 10), (50, 20), (50, 10), (92, 10)]);
    }

    #[test]
    fn a_leaky_bucket_starts_requests_a_tenth_of_a_second_apart() {
        let quota = Quota::leaky_bucket(Rate::per_second(10).unwrap(), 10).unwrap();
        let admitted = Admitted::of(&quota);
        let apart = admitted.starts().windows(2).map(|two| two[1] - two[0]).min();
        assert_eq!(apart, Some(Duration::from_millis(100)));
    }
}
