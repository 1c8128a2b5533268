//! The event files of TensorBoard: records of TensorFlow with messages of the type `Event`.
//!
//! Sources: tensorflow `core/lib/io/record_writer.h` for records, `core/util/event.proto` and
//! `core/framework/summary.proto` for messages, and RFC 3720, appendix B.4, for CRC32C.

use prost::{Message, Oneof};
use saggar_rest::logged_items::HistogramDocument;
use saggar_store::image_decoder::ImageFormat;

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
    #[prost(oneof = "ValueContent", tags = "2, 4, 5")]
    content: Option<ValueContent>,
}

#[derive(Clone, PartialEq, Oneof)]
enum ValueContent {
    #[prost(float, tag = "2")]
    Scalar(f32),
    #[prost(message, tag = "4")]
    Image(EventImage),
    #[prost(message, tag = "5")]
    Histogram(EventHistogram),
}

#[derive(Clone, PartialEq, Message)]
struct EventImage {
    #[prost(int32, tag = "1")]
    height: i32,
    #[prost(int32, tag = "2")]
    width: i32,
    /// The number of channels: 1 or 3.
    #[prost(int32, tag = "3")]
    colorspace: i32,
    /// A PNG file.
    #[prost(bytes = "vec", tag = "4")]
    encoded: Vec<u8>,
}

/// Bins with the upper edge of each. The lower edge of the first bin is `min`, and the upper edge of the last one `max`.
#[derive(Clone, PartialEq, Message)]
struct EventHistogram {
    #[prost(double, tag = "1")]
    min: f64,
    #[prost(double, tag = "2")]
    max: f64,
    #[prost(double, tag = "3")]
    num: f64,
    #[prost(double, tag = "4")]
    sum: f64,
    #[prost(double, tag = "5")]
    sum_squares: f64,
    #[prost(double, repeated, tag = "6")]
    bucket_limit: Vec<f64>,
    #[prost(double, repeated, tag = "7")]
    bucket: Vec<f64>,
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
    encode_value(scalar.tag, scalar.step, scalar.at_ms, ValueContent::Scalar(scalar.value as f32))
}

/// Returns the record of an image, a PNG file with 1 or 3 channels, or `None` if the file is another.
pub(super) fn encode_image(tag: &str, step: u64, at_ms: u64, file: Vec<u8>) -> Option<Vec<u8>> {
    let (height, width) = ImageFormat::Png.dimensions(&file)?;
    // PNG (third edition), 11.2.1: the colour type, 0 for grey and 2 for RGB.
    let colorspace = match file.get(25)? {
        0 => 1,
        2 => 3,
        _ => return None,
    };
    let (height, width) = (i32::try_from(height).ok()?, i32::try_from(width).ok()?);
    let image = EventImage { height, width, colorspace, encoded: file };
    Some(encode_value(tag, step, at_ms, ValueContent::Image(image)))
}

/// Returns the record of a histogram. Its sums, of which TensorBoard shows nothing, are those of the middles of its bins.
pub(super) fn encode_histogram(tag: &str, step: u64, at_ms: u64, histogram: &HistogramDocument) -> Vec<u8> {
    let HistogramDocument { edges, counts } = histogram;
    let bins =
        || edges.windows(2).map(|edges| edges[0] / 2.0 + edges[1] / 2.0).zip(counts.iter().map(|&count| count as f64));
    let histogram = EventHistogram {
        min: edges.first().copied().unwrap_or_default(),
        max: edges.last().copied().unwrap_or_default(),
        num: bins().map(|(_, count)| count).sum(),
        sum: bins().map(|(middle, count)| middle * count).sum(),
        sum_squares: bins().map(|(middle, count)| middle * middle * count).sum(),
        bucket_limit: edges.iter().skip(1).copied().collect(),
        bucket: bins().map(|(_, count)| count).collect(),
    };
    encode_value(tag, step, at_ms, ValueContent::Histogram(histogram))
}

fn encode_value(tag: &str, step: u64, at_ms: u64, content: ValueContent) -> Vec<u8> {
    let value = EventValue { tag: tag.to_owned(), content: Some(content) };
    let step = i64::try_from(step).unwrap_or(i64::MAX);
    let content = Some(EventContent::Summary(EventSummary { values: vec![value] }));
    encode_record(&Event { wall_time: seconds(at_ms), step, content, source: None }.encode_to_vec())
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
        assert_eq!(summary.values[0].content, Some(ValueContent::Scalar(0.0)));
        assert_eq!(u64::from_le_bytes(record[..8].try_into().unwrap()) as usize, record.len() - 16);
    }

    #[test]
    fn only_png_files_with_1_or_3_channels_are_images() {
        for channels in [1, 3] {
            let file = saggar_store::png_encoder::encode_png(&vec![7; 2 * 3 * channels], 2, 3, channels).unwrap();
            let record = encode_image("a", 4, 0, file.clone()).unwrap();
            let message = Event::decode(&record[12..record.len() - 4]).unwrap();
            let Some(EventContent::Summary(summary)) = message.content else { panic!("a summary") };
            let expected = EventImage { height: 2, width: 3, colorspace: channels as i32, encoded: file };
            assert_eq!(summary.values[0].content, Some(ValueContent::Image(expected)));
        }
        assert_eq!(encode_image("a", 4, 0, b"no image".to_vec()), None);
    }

    #[test]
    fn the_bins_of_a_histogram_begin_at_its_lowest_edge() {
        let histogram = HistogramDocument { edges: vec![-1.0, 0.0, 4.0], counts: vec![2, 1] };
        let record = encode_histogram("h", 1, 0, &histogram);
        let message = Event::decode(&record[12..record.len() - 4]).unwrap();
        let Some(EventContent::Summary(summary)) = message.content else { panic!("a summary") };
        let Some(ValueContent::Histogram(written)) = &summary.values[0].content else { panic!("a histogram") };
        assert_eq!((written.min, written.max, written.num), (-1.0, 4.0, 3.0));
        assert_eq!((&written.bucket_limit[..], &written.bucket[..]), (&[0.0, 4.0][..], &[2.0, 1.0][..]));
        assert_eq!((written.sum, written.sum_squares), (1.0, 4.5));
    }
}
