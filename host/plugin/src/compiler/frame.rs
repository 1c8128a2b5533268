//! The protocol on the pipes between a server and a compile child: a request on the child's standard input, an answer
//! on its standard output. An answer includes its length and digest, so a truncated or corrupt one is rejected.

use std::io::{self, Read, Write};

use saggar_store::Digest;

const MAGIC: &[u8; 8] = b"SAGGARCC";
const HEADER_BYTES: usize = 8 + 1 + 8 + 32;
/// Maximum parts of one request.
const PARTS_MAX: u32 = 1 << 20;

/// The outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AnswerStatus {
    /// The payload is the result.
    Done = 0,
    /// The payload is the reason of the refusal.
    Refused = 1,
    /// The request needs more memory than the child's limit.
    OutOfMemory = 2,
}

/// The payload of an answer whose length and digest were verified.
#[derive(Debug)]
pub(crate) struct AnswerPayload(Vec<u8>);

impl AnswerPayload {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

pub(super) fn write_request(to: &mut impl Write, parts: &[&[u8]]) -> io::Result<()> {
    let count = u32::try_from(parts.len()).map_err(io::Error::other)?;
    to.write_all(&count.to_le_bytes())?;
    for part in parts {
        to.write_all(&(part.len() as u64).to_le_bytes())?;
        to.write_all(part)?;
    }
    to.flush()
}

/// Reads the parts of a request. They come from the server, which has limited their size.
pub(super) fn read_request(from: &mut impl Read) -> io::Result<Vec<Vec<u8>>> {
    let mut count = [0; 4];
    from.read_exact(&mut count)?;
    let count = u32::from_le_bytes(count);
    if count > PARTS_MAX {
        return Err(io::Error::other("the request has too many parts"));
    }
    (0..count).map(|_| read_part(from)).collect()
}

fn read_part(from: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    read_bytes(from, u64::from_le_bytes(length))
}

fn read_bytes(from: &mut impl Read, length: u64) -> io::Result<Vec<u8>> {
    let length = usize::try_from(length).map_err(io::Error::other)?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(length).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
    let read = from.take(length as u64).read_to_end(&mut bytes)?;
    if read == length { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

pub(super) fn write_answer(to: &mut impl Write, status: AnswerStatus, parts: &[&[u8]]) -> io::Result<()> {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    to.write_all(MAGIC)?;
    to.write_all(&[status as u8])?;
    to.write_all(&(length as u64).to_le_bytes())?;
    to.write_all(digest(status, parts).bytes())?;
    parts.iter().try_for_each(|part| to.write_all(part))?;
    to.flush()
}

fn digest(status: AnswerStatus, parts: &[&[u8]]) -> Digest {
    let mut hasher = saggar_store::digest::Sha256Hasher::default();
    hasher.update(&[status as u8]);
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finish()
}

/// Reasons why an answer cannot be read.
#[derive(Debug)]
pub(super) enum ReadAnswerError {
    /// The pipe ended early or its data is invalid.
    Broken,
    /// The payload is larger than allowed.
    TooLarge { bytes: u64 },
}

impl From<io::Error> for ReadAnswerError {
    fn from(_: io::Error) -> ReadAnswerError {
        ReadAnswerError::Broken
    }
}

/// Reads an answer whose payload has at most `bytes_max` bytes.
pub(super) fn read_answer(
    from: &mut impl Read,
    bytes_max: u64,
) -> Result<(AnswerStatus, AnswerPayload), ReadAnswerError> {
    let mut header = [0; HEADER_BYTES];
    from.read_exact(&mut header)?;
    let status = match header[8] {
        0 => AnswerStatus::Done,
        1 => AnswerStatus::Refused,
        2 => AnswerStatus::OutOfMemory,
        _ => return Err(ReadAnswerError::Broken),
    };
    let mut length = [0; 8];
    length.copy_from_slice(&header[9..17]);
    let bytes = u64::from_le_bytes(length);
    if header[..8] != *MAGIC {
        return Err(ReadAnswerError::Broken);
    }
    if bytes > bytes_max {
        return Err(ReadAnswerError::TooLarge { bytes });
    }
    let payload = read_bytes(from, bytes)?;
    if header[17..] != *digest(status, &[&payload]).bytes() {
        return Err(ReadAnswerError::Broken);
    }
    Ok((status, AnswerPayload(payload)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_truncated_or_corrupt_answer_is_rejected() {
        let mut sent = Vec::new();
        write_answer(&mut sent, AnswerStatus::Refused, &[b"part", b"", b"s"]).unwrap();
        let (status, payload) = read_answer(&mut &sent[..], 5).unwrap();
        assert_eq!((status, payload.bytes()), (AnswerStatus::Refused, &b"parts"[..]));
        assert!(matches!(read_answer(&mut &sent[..], 4), Err(ReadAnswerError::TooLarge { bytes: 5 })));
        for cut in 0..sent.len() {
            assert!(read_answer(&mut &sent[..cut], 5).is_err(), "cut to {cut} bytes");
        }
        for at in 0..sent.len() {
            let mut flipped = sent.clone();
            flipped[at] ^= 1;
            assert!(read_answer(&mut &flipped[..], 5).is_err(), "byte {at} is wrong");
        }
    }

    #[test]
    fn a_request_round_trips_with_its_parts() {
        let mut sent = Vec::new();
        write_request(&mut sent, &[b"header", b"", b"bytes"]).unwrap();
        assert_eq!(read_request(&mut &sent[..]).unwrap(), [&b"header"[..], b"", b"bytes"]);
        for cut in 0..sent.len() {
            assert!(read_request(&mut &sent[..cut]).is_err(), "cut to {cut} bytes");
        }
    }
}
