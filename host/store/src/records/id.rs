//! Identifiers that sort by time: 48 bits of milliseconds and 80 random ones, as 26 digits of
//! Crockford's base 32. Source: the ULID specification.

use saggar_clock::UnixMillis;

use crate::durable;

const DIGITS: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";

/// Returns a new identifier of this time.
pub fn new(now_ms: UnixMillis) -> String {
    encode(now_ms, durable::random_bytes())
}

fn encode(now_ms: UnixMillis, random: [u8; 10]) -> String {
    let mut bits = u128::from(now_ms & ((1 << 48) - 1)) << 80;
    for (at, byte) in random.into_iter().enumerate() {
        bits |= u128::from(byte) << (72 - 8 * at);
    }
    (0..26).map(|at| char::from(DIGITS[(bits >> (125 - 5 * at)) as usize & 31])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_those_of_the_specification() {
        assert_eq!(encode(0, [0; 10]), "0".repeat(26));
        assert_eq!(encode((1 << 48) - 1, [255; 10]), "7ZZZZZZZZZZZZZZZZZZZZZZZZZ");
        assert_eq!(&encode(1_469_918_176_385, [0; 10])[..10], "01ARYZ6S41");
    }

    #[test]
    fn later_ones_sort_later_and_none_repeats() {
        let mut ids: Vec<String> = (0..1000).map(|at| new(1_700_000_000_000 + at)).collect();
        let made = ids.clone();
        ids.sort();
        assert_eq!(ids, made);
        assert_ne!(new(5), new(5));
    }
}
