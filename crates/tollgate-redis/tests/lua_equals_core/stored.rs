//! What a key holds, as core would say it.

use std::collections::BTreeMap;

use tollgate_core::fixed_window::Window;
use tollgate_core::sliding_window::Cell;
use tollgate_core::{Bucket, State, Timestamp};

/// A state that can be compared, whether it comes from core or from Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Bucket(Bucket),
    Window(Window),
    Cells {
        width_us: u64,
        ts: Timestamp,
        spent: Vec<Cell>,
    },
    /// The ticket, the units and the end of each lease.
    Slots(BTreeMap<String, (u64, Timestamp)>),
}

impl From<&State> for Seen {
    fn from(state: &State) -> Self {
        match state {
            State::Bucket(bucket) => Self::Bucket(*bucket),
            State::Window(window) => Self::Window(*window),
            State::Cells(cells) => Self::Cells {
                width_us: cells.width_us,
                ts: cells.ts,
                spent: cells.spent().collect(),
            },
            State::Slots(slots) => Self::Slots(
                slots
                    .iter()
                    .map(|(id, lease)| (id.to_string(), (lease.units, lease.ends)))
                    .collect(),
            ),
            other => panic!("{other:?}"),
        }
    }
}

/// What Redis says of one key.
#[derive(Clone, Debug)]
pub(crate) struct Dump {
    pub(crate) kind: String,
    pub(crate) content: Vec<String>,
    pub(crate) ttl_ms: i64,
}

/// A script of the test: the type, the content and the TTL of each key.
const DUMP: &str = "
local dumps = {}
for i, key in ipairs(KEYS) do
  local kind, content = redis.call('TYPE', key).ok, {}
  if kind == 'hash' then
    content = redis.call('HGETALL', key)
  elseif kind == 'zset' then
    content = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  elseif kind == 'string' then
    content = { redis.call('GET', key) }
  end
  dumps[i] = { kind, content, redis.call('PTTL', key) }
end
return dumps";

pub(crate) fn dump(redis: &mut redis::Connection, keys: &[String]) -> Vec<Dump> {
    let dumps: Vec<(String, Vec<String>, i64)> =
        redis::cmd("EVAL").arg(DUMP).arg(keys.len()).arg(keys).query(redis).unwrap();
    dumps.into_iter().map(|(kind, content, ttl_ms)| Dump { kind, content, ttl_ms }).collect()
}

impl Dump {
    /// Reads the state of a bucket, `None` if there is no such key.
    ///
    /// # Panics
    ///
    /// If it is not in the form that `lua/README.md` states, down to the last field.
    pub(crate) fn state(&self) -> Option<Seen> {
        let pairs = || self.content.chunks(2).map(|pair| (pair[0].as_str(), pair[1].as_str()));
        match self.kind.as_str() {
            "none" => None,
            "hash" => Some(hash(&pairs().collect())),
            "zset" => Some(slots(pairs())),
            other => panic!("a {other}"),
        }
    }
}

fn number(text: &str) -> u64 {
    let number = text.parse().unwrap();
    assert_eq!(format!("{number}"), text, "in its shortest form");
    assert!(number < 1 << 53);
    number
}

fn hash(fields: &BTreeMap<&str, &str>) -> Seen {
    let field = |name: &str| number(fields[name]);
    let ts = Timestamp::from_micros(field("ts"));
    let names: Vec<&str> = fields.keys().copied().collect();
    if names == ["expires", "level", "scale", "ts"] {
        number(fields["expires"]);
        return Seen::Bucket(Bucket { level: field("level"), scale: field("scale"), ts });
    }
    if names == ["level", "scale", "ts"] {
        return Seen::Bucket(Bucket { level: field("level"), scale: field("scale"), ts });
    }
    if names == ["ts", "used"] {
        return Seen::Window(Window { used: field("used"), ts });
    }
    let spent: Vec<Cell> = (field("head")..=field("tail"))
        .map(|entry| {
            let (index, units) = fields[entry.to_string().as_str()].split_once(':').unwrap();
            Cell { index: number(index), units: number(units) }
        })
        .collect();
    assert_eq!(fields.len(), 5 + spent.len(), "{names:?}");
    assert_eq!(field("used"), spent.iter().map(|cell| cell.units).sum::<u64>());
    Seen::Cells { width_us: field("width"), ts, spent }
}

fn slots<'a>(members: impl Iterator<Item = (&'a str, &'a str)>) -> Seen {
    let mut leases: BTreeMap<String, (Vec<u64>, Timestamp)> = BTreeMap::new();
    for (member, end) in members {
        let (ticket, unit) = member.split_once(':').unwrap_or((member, "1"));
        let end = Timestamp::from_micros(number(end));
        let lease = leases.entry(ticket.to_owned()).or_insert((Vec::new(), end));
        assert_eq!(lease.1, end, "{ticket} ends at once");
        lease.0.push(number(unit));
    }
    let numbered = |(ticket, (mut units, end)): (String, (Vec<u64>, Timestamp))| {
        units.sort_unstable();
        let count = units.len() as u64;
        assert_eq!(units, (1..=count).collect::<Vec<_>>(), "{ticket}");
        (ticket, (count, end))
    };
    Seen::Slots(leases.into_iter().map(numbered).collect())
}
