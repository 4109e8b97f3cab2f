//! The keys in Redis, and the hash slots in which a Redis Cluster keeps them.

use std::io::Write;

use redis::{Cmd, RedisWrite};
use tollgate_core::Ticket;

/// Appends the key of a bucket, `<prefix>:<key>`, as one argument.
pub(crate) fn write_bucket(command: &mut Cmd, prefix: &str, key: &str) {
    // Written by parts, since formatting costs more than all else of an argument.
    let mut written = command.writer_for_next_arg();
    for part in [prefix, ":", key] {
        // A command is in memory, so that it takes all.
        let _ = written.write_all(part.as_bytes());
    }
}

/// Appends the key of a record as one argument: see [`record`].
pub(crate) fn write_record(command: &mut Cmd, prefix: &str, key: &str, ticket: Ticket) {
    match hash_tag(key) {
        None => command.write_arg_fmt(format_args!("{{{prefix}:{key}}}:ticket:{ticket}")),
        Some(tag) => {
            command.write_arg_fmt(format_args!("{{{tag}}}:{prefix}:{key}:ticket:{ticket}"))
        }
    }
}

/// Returns the key of a record: `{<key of the bucket>}:ticket:<ticket>`, which is in the slot of the
/// bucket. A bucket that has a hash tag of its own keeps that:
/// `{<tag>}:<key of the bucket>:ticket:<ticket>`. No bucket has such a key, as no prefix has a brace.
pub(crate) fn record(prefix: &str, key: &str, ticket: Ticket) -> String {
    match hash_tag(key) {
        None => format!("{{{prefix}:{key}}}:ticket:{ticket}"),
        Some(tag) => format!("{{{tag}}}:{prefix}:{key}:ticket:{ticket}"),
    }
}

/// Tells whether the records of a bucket are in its slot. Keys that `tollgate_core` writes always
/// do that: only a `}` outside of a hash tag is in the way.
pub(crate) fn keeps_records_beside(key: &str) -> bool {
    hash_tag(key).is_some() || !key.contains('}')
}

/// The part of a key that alone decides its slot: what is between the first `{` and the next `}`,
/// unless that is nothing. No prefix has a brace.
fn hash_tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// One of the slots that the nodes of a Redis Cluster share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HashSlot(u16);

impl HashSlot {
    pub(crate) const COUNT: usize = 16_384;

    /// Any slot, for calls without a key.
    pub(crate) const ANY: Self = Self(0);

    /// Returns the slot of a bucket.
    pub(crate) fn of(prefix: &str, key: &str) -> Self {
        let crc = match hash_tag(key) {
            Some(tag) => crc16(0, tag.as_bytes()),
            None => crc16(crc16(crc16(0, prefix.as_bytes()), b":"), key.as_bytes()),
        };
        Self(crc % 16_384)
    }

    /// Returns the slot of that number, if there is one.
    pub(crate) fn new(number: u16) -> Option<Self> {
        (usize::from(number) < Self::COUNT).then_some(Self(number))
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The CRC-16 of the Redis Cluster specification (XMODEM: polynomial 0x1021, from 0), continued
/// from `crc`.
fn crc16(crc: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(crc, |crc, byte| {
        let index = usize::from((crc >> 8) as u8 ^ byte);
        (crc << 8) ^ CRC16_TABLE[index]
    })
}

const CRC16_TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut index: u16 = 0;
    while index < 256 {
        let mut crc = index << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 };
            bit += 1;
        }
        table[index as usize] = crc;
        index += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_the_specification() {
        assert_eq!(crc16(0, b"123456789"), 0x31c3);
        assert_eq!(crc16(crc16(0, b"1234"), b"56789"), 0x31c3);
    }

    #[test]
    fn only_a_hash_tag_that_is_not_empty_stands_for_the_key() {
        for (key, tag) in [
            ("a", None),
            ("a:{b}:c", Some("b")),
            ("{b}{c}", Some("b")),
            ("{{b}}", Some("{b")),
            ("{}{b}", None),
            ("a}{b", None),
            ("{b", None),
        ] {
            assert_eq!(hash_tag(key), tag, "{key}");
        }
        assert_eq!(HashSlot::of("shop", "x{user}"), HashSlot::of("tollgate", "{user}y"));
        assert_ne!(HashSlot::of("shop", "x"), HashSlot::of("tollgate", "x"));
    }

    #[test]
    fn every_shard_of_a_bucket_has_a_slot_of_its_own_and_the_first_four_are_far_apart() {
        for key in ["default:all", "default:each:account=7", "{shop}:all", "all:{shop}", "{}a"] {
            let slot = |shard| HashSlot::of("tollgate", &tollgate_core::key::shard(key, shard)).0;
            let mut slots: Vec<_> = (0..64).map(slot).collect();
            let mut quarters: Vec<_> = slots[..4].iter().map(|slot| slot / 4_096).collect();
            quarters.sort_unstable();
            assert_eq!(quarters, [0, 1, 2, 3], "{key}");
            slots.sort_unstable();
            slots.dedup();
            assert_eq!(slots.len(), 64, "{key}");
        }
    }

    #[test]
    fn a_record_is_in_the_slot_of_its_bucket() {
        let slot = |full: &str| match hash_tag(full) {
            Some(tag) => crc16(0, tag.as_bytes()) % 16_384,
            None => crc16(0, full.as_bytes()) % 16_384,
        };
        for key in ["default:login:ip=192.0.2.1", "a:{b}:c", "{b}", "", "a{b", "{{b}}", "a%7D"] {
            assert!(keeps_records_beside(key), "{key}");
            let record = record("tollgate", key, Ticket::new(7));
            assert_eq!(slot(&record), HashSlot::of("tollgate", key).0, "{record}");
        }
        for key in ["a}b", "{}a", "a}{b"] {
            assert!(!keeps_records_beside(key), "{key}");
        }
    }
}
