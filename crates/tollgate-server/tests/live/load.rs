//! Many changes under load.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tollgate::Attributes;

use crate::folder::{Folder, configured};
use crate::rules;

/// Two versions that differ in everything but what the test counts: `gate` admits 5 a day in both.
fn version(number: u32) -> String {
    let other = if number.is_multiple_of(2) { "even" } else { "odd" };
    configured(&format!(
        "rules:\n  - {{ name: gate, key: ip, limit: 5/day }}\n  - {{ name: {other}, key: [ip, path], \
         limit: {}/s }}\n# {number}\n",
        1_000_000 + number
    ))
}

fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_changes_under_load_decide_nothing_wrong_and_keep_no_memory() {
    let folder = Folder::new(&rules(1));
    folder.write("tollgate.yaml", &version(0));
    let service = folder.serve().await;
    let is_over = Arc::new(AtomicBool::new(false));
    let wrong = Arc::new(AtomicU64::new(0));
    let load: Vec<_> = (0..2u32)
        .map(|task| {
            let (limiter, is_over, wrong) =
                (service.limiter.clone(), Arc::clone(&is_over), Arc::clone(&wrong));
            tokio::spawn(async move {
                let mut asked = 0u64;
                for caller in 0u64.. {
                    if is_over.load(Ordering::Relaxed) {
                        break;
                    }
                    // Each caller has 5 units, whatever the versions in force meanwhile are. Callers
                    // come again, so that the buckets are bounded.
                    let ip = format!("{task}.{}", caller % 10_000);
                    let attributes = Attributes::from([("ip", ip.as_str()), ("path", "/")]);
                    let expected = if caller < 10_000 { 5 } else { 0 };
                    let mut allowed = 0;
                    for _ in 0..7 {
                        let verdict = limiter.check(&attributes).await.unwrap();
                        allowed += u64::from(verdict.is_allowed());
                        asked += 1;
                    }
                    wrong.fetch_add(u64::from(allowed != expected), Ordering::Relaxed);
                    // A load that leaves the machine some time for the changes.
                    tokio::time::sleep(Duration::from_micros(500)).await;
                }
                asked
            })
        })
        .collect();
    let mut after_warm_up = 0;
    for number in 1..=1_000 {
        folder.replace("tollgate.yaml", &version(number));
        let want = u64::from(1_000_000 + number);
        crate::until(async || {
            let rules = service.limiter.rules();
            rules.iter().any(|rule| rule.quota().rate().units() == want)
        })
        .await;
        if number == 300 {
            after_warm_up = resident_kib();
        }
    }
    let at_the_end = resident_kib();
    is_over.store(true, Ordering::Relaxed);
    let mut asked = 0;
    for task in load {
        asked += task.await.unwrap();
    }
    assert_eq!(wrong.load(Ordering::Relaxed), 0, "of {asked} checks");
    assert!(asked > 100_000, "{asked} checks");
    assert_eq!(service.metric("tollgate_rules_changes_total").await, Some(1_000.0));
    assert_eq!(service.metric("tollgate_rules_refusals_total").await, Some(0.0));
    // The buckets of the callers are all there by then.
    let grown = at_the_end.saturating_sub(after_warm_up);
    assert!(grown < 4 * 1_024, "{after_warm_up} KiB became {at_the_end} KiB");
}
