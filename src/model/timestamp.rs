//! Points in time as people and programs write them.

use time::format_description::well_known::Iso8601;
use time::{Date, OffsetDateTime, PrimitiveDateTime, UtcDateTime};

/// Bytes of the longest that is read.
const MAX_BYTES: usize = 64;

/// Microseconds since 1970 of a date, or a date with a time, as ISO 8601 and RFC 3339 write it ("2024-12-31",
/// "2024-12-31T23:59:59.5Z", "2024-12-31 23:59:59+01:00"), of the years 0 to 9999. What has no offset is UTC. None: it is
/// no such text.
pub fn microseconds(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    // With hyphens only: a word or number of digits is no date.
    let is_date = bytes.len() >= 10
        && bytes.len() <= MAX_BYTES
        && bytes[..10].iter().enumerate().all(|(at, byte)| match at {
            4 | 7 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    if !is_date {
        return None;
    }
    if bytes.len() == 10 {
        let date = Date::parse(text, &Iso8601::DATE).ok()?;
        return Some(since_1970(UtcDateTime::new(date, time::Time::MIDNIGHT)));
    }
    if !matches!(bytes[10], b'T' | b't' | b' ') {
        return None;
    }
    let text = format!("{}T{}", text.get(..10)?, text.get(11..)?.to_ascii_uppercase());
    match OffsetDateTime::parse(&text, &Iso8601::DEFAULT) {
        Ok(at) => Some(since_1970(at.to_utc())),
        Err(_) => PrimitiveDateTime::parse(&text, &Iso8601::DEFAULT).ok().map(|at| since_1970(at.as_utc())),
    }
}

fn since_1970(at: UtcDateTime) -> i64 {
    (at.unix_timestamp_nanos().div_euclid(1000)) as i64
}

#[cfg(test)]
mod tests {
    use super::microseconds;

    #[test]
    fn the_ways_to_write_a_time_give_the_same() {
        for (text, expected) in [
            ("1970-01-01", 0),
            ("1970-01-01T00:00:01Z", 1_000_000),
            ("1970-01-01t00:00:01z", 1_000_000),
            ("1970-01-01 00:00:01", 1_000_000),
            ("1970-01-01T01:00:01+01:00", 1_000_000),
            ("1970-01-01 01:00:01+01", 1_000_000),
            ("1970-01-01T00:00:00.5Z", 500_000),
            ("1970-01-01T00:00:00.1234567Z", 123_456),
            ("1969-12-31T23:59:59.999999Z", -1),
            ("1970-01-01T00:01", 60_000_000),
            ("2024-02-29", 1_709_164_800_000_000),
        ] {
            assert_eq!(microseconds(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn what_is_no_time_is_none() {
        let long = "1".repeat(1000);
        for text in [
            "",
            "2024",
            "20240101",
            "2024-1-1",
            "2024-02-30",
            "2023-02-29",
            "2024-13-01",
            "2024-01-01T",
            "2024-01-01x",
            "2024-01-01T25:00:00Z",
            "2024-W01-1",
            "99999-01-01",
            "2024-01-01T00:00:00+99:00",
            "yesterday",
            " 2024-01-01",
            "2024-01-01T00:00:00Z ",
            "２024-01-01",
            &long,
        ] {
            assert_eq!(microseconds(text), None, "{text}");
        }
    }
}
