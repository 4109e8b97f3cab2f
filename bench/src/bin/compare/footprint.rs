//! What the store in memory takes for each key.

use std::fs;
use std::time::Duration;

use tollgate::{Charge, Cost, MemoryStore, Operation, Quota, Timestamp};

use crate::keys::key;
use crate::row::{Error, Row, Target, Unit};

const EPOCH_US: u64 = 1_700_000_000_000_000;

pub(crate) fn rows() -> Result<Vec<Row>, Error> {
    Ok(vec![
        Row::single(
            "1,000,000 keys of 24 bytes, as the store counts",
            Unit::BytesPerKey,
            Target::AtMost(120.0),
            || {
                let store = filled(1_000_000)?;
                Ok(store.bytes() as f64 / 1_000_000.0)
            },
        ),
        Row::single(
            "1,000,000 keys of 24 bytes, resident",
            Unit::BytesPerKey,
            Target::AtMost(120.0),
            || {
                let before = resident_bytes()?;
                let store = filled(1_000_000)?;
                let after = resident_bytes()?;
                drop(store);
                Ok((after - before) / 1_000_000.0)
            },
        ),
    ])
}

/// Fills a store with so many keys.
fn filled(count: usize) -> Result<MemoryStore, Error> {
    let store = MemoryStore::builder().keys_max(count).build();
    let quota = Quota::new("1/hour".parse()?, 5)?;
    for number in 0..count {
        let key = key(number);
        let now =
            Timestamp::from_micros(EPOCH_US).saturating_add(Duration::from_micros(number as u64));
        let _ = store.decide_one(Operation::Spend, &Charge::new(&key, &quota, Cost::ONE), now)?;
    }
    Ok(store)
}

fn resident_bytes() -> Result<f64, Error> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).ok_or("no VmRSS")?;
    Ok(kib.trim().parse::<f64>()? * 1_024.0)
}
