//! Keys that lie beside what is kept for them.

/// The longest key that is kept short, in bytes.
const LEN_MAX: usize = 30;

/// A key of at most 30 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortKey {
    len: u8,
    bytes: [u8; LEN_MAX],
}

impl ShortKey {
    /// Makes a short key, if it can be one.
    pub(crate) fn new(key: &str) -> Option<Self> {
        let mut bytes = [0; LEN_MAX];
        bytes.get_mut(..key.len())?.copy_from_slice(key.as_bytes());
        Some(Self { len: u8::try_from(key.len()).ok()?, bytes })
    }

    #[inline]
    pub(crate) fn is(&self, key: &str) -> bool {
        usize::from(self.len) == key.len() && is_same(self.as_bytes(), key.as_bytes())
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.len.into()).unwrap_or_default()
    }
}

/// Compares keys of one length, at most 30 bytes: two overlapping blocks of them do, which is less
/// than half of what a call to compare any bytes costs.
#[inline]
fn is_same(one: &[u8], other: &[u8]) -> bool {
    if let (Some(one_first), Some(other_first)) = (one.first_chunk::<16>(), other.first_chunk()) {
        return one_first == other_first && one.last_chunk::<16>() == other.last_chunk();
    }
    if let (Some(one_first), Some(other_first)) = (one.first_chunk::<8>(), other.first_chunk()) {
        return one_first == other_first && one.last_chunk::<8>() == other.last_chunk();
    }
    one == other
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use super::*;

    #[test]
    fn a_short_key_is_the_key_it_was_made_of_and_no_other() {
        for len in 0..=LEN_MAX {
            let key = "abcdefghijklmnopqrstuvwxyz01234567"[..len].to_owned();
            let short = ShortKey::new(&key).unwrap();
            assert_eq!(short.as_bytes(), key.as_bytes());
            assert!(short.is(&key));
            assert!(!short.is(&format!("{key}x")));
            for at in 0..len {
                let mut other = key.clone();
                other.replace_range(at..=at, "#");
                assert!(!short.is(&other), "{other}");
                assert!(!short.is(&key[..at]));
            }
        }
        assert!(ShortKey::new(&"x".repeat(LEN_MAX + 1)).is_none());
    }
}
