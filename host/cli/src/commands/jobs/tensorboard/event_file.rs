//! The event files of TensorBoard: records of TensorFlow with messages of the type `Event`.
//!
//! Sources: tensorflow `core/lib/io/record_writer.h` for records, `core/util/event.proto` and
//! `core/framework/summary.proto` for messages, and RFC 3720, appendix B.4, for CRC32C.

use prost::{Message, Oneof};

/// The version of the files, in the first event.
const FILE_VERSION: &str = "brain.Event:2";
/// CRC32C's polynomial, with the bits reversed.
const CRC_POLYNOMIAL: u32 = 0x82f6_3b78;
/// The constant of masked checksums, which differ from the checksums of data that contains checksums.
const CRC_MASK: u32 = 0xa282_ead8;

#[derive(Clone, PartialEq, Message)]
struct Event {
    #[prost(double, tag = "1")]
    wall_time: f64,
    #[prost(int64, tag = "2")]
    step: i64,
    #[prost(oneof = "EventContent", tags = "3, 5")]
    content: Option<EventContent>,
    #[prost(message, optional, tag = "10")]
    source: Option<EventSource>,
}

#[derive(Clone, PartialEq, Oneof)]
enum EventContent {
    #[prost(string, tag = "3")]
    FileVersion(String),
    #[prost(message, tag = "5")]
    Summary(EventSummary),
}

#[derive(Clone, PartialEq, Message)]
struct EventSource {
    #[prost(string, tag = "1")]
    writer: String,
}

#[derive(Clone, PartialEq, Message)]
struct EventSummary {
    #[prost(message, repeated, tag = "1")]
    values: Vec<EventValue>,
}

#[derive(Clone, PartialEq, Message)]
struct EventValue {
    #[prost(string, tag = "1")]
    tag: String,
    /// Set also if it is 0, because it is one of several fields of which one is set.
    #[prost(float, optional, tag = "2")]
    simple_value: Option<f32>,
}

/// A value of a series.
pub(super) struct ScalarEvent<'a> {
    pub(super) tag: &'a str,
    pub(super) step: u64,
    pub(super) value: f64,
    /// In ms since 1970.
    pub(super) at_ms: u64,
}

/// Returns the first record of a file.
pub(super) fn encode_file_start(started_ms: u64) -> Vec<u8> {
    let source = Some(EventSource { writer: format!("saggar {}", env!("CARGO_PKG_VERSION")) });
    let content = Some(EventContent::FileVersion(FILE_VERSION.to_owned()));
    encode_record(&Event { wall_time: seconds(started_ms), step: 0, content, source }.encode_to_vec())
}

/// Returns the record of a value, which TensorBoard stores in 32 bits.
pub(super) fn encode_scalar(scalar: &ScalarEvent<'_>) -> Vec<u8> {
    let value = EventValue { tag: scalar.tag.to_owned(), simple_value: Some(scalar.value as f32) };
    let step = i64::try_from(scalar.step).unwrap_or(i64::MAX);
    let content = Some(EventContent::Summary(EventSummary { values: vec![value] }));
    encode_record(&Event { wall_time: seconds(scalar.at_ms), step, content, source: None }.encode_to_vec())
}

fn seconds(ms: u64) -> f64 {
    ms as f64 / 1000.0
}

/// Frames a message: its length, the length's checksum, the message, and its checksum, each in little-endian order.
fn encode_record(message: &[u8]) -> Vec<u8> {
    let length = (message.len() as u64).to_le_bytes();
    let mut record = Vec::with_capacity(message.len() + 16);
    record.extend_from_slice(&length);
    record.extend_from_slice(&masked_crc(&length).to_le_bytes());
    record.extend_from_slice(message);
    record.extend_from_slice(&masked_crc(message).to_le_bytes());
    record
}

fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c(bytes).rotate_right(15).wrapping_add(CRC_MASK)
}

fn crc32c(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = crc_table();
    !bytes.iter().fold(u32::MAX, |crc, &byte| crc >> 8 ^ TABLE[usize::from(crc as u8 ^ byte)])
}

const fn crc_table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let (mut crc, mut bit) = (at as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ CRC_POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of RFC 3720, appendix B.4.
    #[test]
    fn checksums_are_those_of_the_rfc() {
        let rising: Vec<u8> = (0..32).collect();
        let falling: Vec<u8> = (0..32).rev().collect();
        for (bytes, expected) in
            [(&[0; 32][..], 0x8a91_36aa), (&[0xff; 32], 0x62a8_ab43), (&rising, 0x46dd_794e), (&falling, 0x113f_db5c)]
        {
            assert_eq!(crc32c(bytes), expected);
        }
    }

    #[test]
    fn a_value_of_zero_is_written() {
        let record = encode_scalar(&ScalarEvent { tag: "loss", step: 0, value: 0.0, at_ms: 0 });
        let message = Event::decode(&record[12..record.len() - 4]).unwrap();
        let Some(EventContent::Summary(summary)) = message.content else { panic!("a summary") };
        assert_eq!(summary.values[0].simple_value, Some(0.0));
        assert_eq!(u64::from_le_bytes(record[..8].try_into().unwrap()) as usize, record.len() - 16);
    }
}
