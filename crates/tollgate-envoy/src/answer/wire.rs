//! Messages of Protobuf, written as they go over the wire.

use prost::encoding::encode_varint;
use prost::length_delimiter_len;

/// A message that is being written. Tags are those of fields below 16, which take a byte.
#[derive(Debug)]
pub(super) struct Wire(pub(super) Vec<u8>);

/// The tag of a field that is a number of variable length.
pub(super) const fn varint(field: u8) -> u8 {
    field << 3
}

/// The tag of a field that is a double.
pub(super) const fn double(field: u8) -> u8 {
    field << 3 | 1
}

/// The tag of a field whose length comes first.
pub(super) const fn delimited(field: u8) -> u8 {
    field << 3 | 2
}

impl Wire {
    /// Writes what is its own length, or a number without a tag.
    pub(super) fn number(&mut self, number: u64) {
        match u8::try_from(number) {
            // Nearly all are short.
            Ok(short @ ..0x80) => self.0.push(short),
            _ => encode_varint(number, &mut self.0),
        }
    }

    /// Writes a number, unless it is 0, which a message leaves out.
    pub(super) fn varint(&mut self, tag: u8, number: u64) {
        if number != 0 {
            self.0.push(tag);
            self.number(number);
        }
    }

    pub(super) fn bytes(&mut self, tag: u8, bytes: &[u8]) {
        self.0.push(tag);
        self.number(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    /// Writes bytes, unless there are none, which a message leaves out.
    pub(super) fn some_bytes(&mut self, tag: u8, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.bytes(tag, bytes);
        }
    }

    /// Writes something with its length before it, which is known only once it is there.
    pub(super) fn nested(&mut self, tag: u8, write: impl FnOnce(&mut Self)) {
        self.0.extend_from_slice(&[tag, 0]);
        let start = self.0.len();
        write(self);
        let len = self.0.len() - start;
        match u8::try_from(len) {
            Ok(short @ ..0x80) => self.0[start - 1] = short,
            _ => self.put_length(start, len),
        }
    }

    /// Writes a length of more than a byte where there is one, and moves what is behind it.
    fn put_length(&mut self, start: usize, len: usize) {
        let more = length_delimiter_len(len) - 1;
        self.0.resize(start + len + more, 0);
        self.0.copy_within(start..start + len, start + more);
        let mut prefix = &mut self.0[start - 1..];
        encode_varint(len as u64, &mut prefix);
    }
}
