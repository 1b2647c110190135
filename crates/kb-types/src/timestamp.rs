//! Reads timestamps as people and programs write them.

use time::format_description::well_known::{Iso8601, Rfc3339};
use time::{Date, OffsetDateTime};

/// The most bytes of a timestamp.
const MAX_BYTES: usize = 64;

/// Microseconds since 1970 of a date, or of a date with a time, in the notation of ISO 8601 and RFC 3339
/// ("2024-12-31", "2024-12-31T23:59:59.5Z", "2024-12-31 23:59:59+01:00"), for the years 0 to 9999. Without an
/// offset it is UTC. None for any other text.
pub fn microseconds(text: &str) -> Option<i64> {
    if text.len() > MAX_BYTES || !begins_with_date(text) {
        return None;
    }
    let (date, clock) = (text.get(..10)?, text.get(10..)?);
    if clock.is_empty() {
        let date = Date::parse(date, &Iso8601::DATE).ok()?;
        return micros(date.midnight().assume_utc());
    }
    let clock = clock.strip_prefix(['T', 't', ' '])?;
    let (clock, offset) = clock.split_at(clock.find(['Z', 'z', '+', '-']).unwrap_or(clock.len()));
    let (time, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let is_clock = is_in_pairs(time) && matches!(time.len(), 5 | 8) && (time.len() == 8 || clock == time);
    let is_fraction = !fraction.is_empty() && fraction.bytes().all(|byte| byte.is_ascii_digit());
    if !is_clock || !is_fraction || time.ends_with(":60") {
        return None;
    }
    let offset = match offset {
        "" | "Z" | "z" => "Z".into(),
        _ => match (offset.len(), is_in_pairs(offset.get(1..)?)) {
            (3, true) => format!("{offset}:00"),
            (6, true) => offset.into(),
            (5, _) => format!("{}:{}", offset.get(..3)?, offset.get(3..)?),
            _ => return None,
        },
    };
    let seconds = if time.len() == 5 { ":00" } else { "" };
    let fraction = fraction.get(..fraction.len().min(9))?;
    micros(OffsetDateTime::parse(&format!("{date}T{time}{seconds}.{fraction}{offset}"), &Rfc3339).ok()?)
}

/// Whether a text begins like a date with a time, even if it is not valid.
pub fn is_like_one(text: &str) -> bool {
    let rest = text.as_bytes().get(10..).unwrap_or_default();
    begins_with_date(text) && (rest.is_empty() || matches!(rest, [b'T' | b't' | b' ', b'0'..=b'9', ..]))
}

/// Requires hyphens, because a number is not a date.
fn begins_with_date(text: &str) -> bool {
    text.len() >= 10
        && text.bytes().take(10).enumerate().all(|(at, byte)| match at {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        })
}

/// Whether it consists of pairs of digits with colons between them.
fn is_in_pairs(text: &str) -> bool {
    text.split(':').all(|pair| pair.len() == 2 && pair.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Does not convert to UTC's calendar first, where the last hours of the year 9999 would overflow.
fn micros(at: OffsetDateTime) -> Option<i64> {
    i64::try_from(at.unix_timestamp_nanos().div_euclid(1000)).ok()
}

#[cfg(test)]
mod tests {
    use super::microseconds;

    #[test]
    fn all_notations_of_a_time_give_the_same_result() {
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
            ("1970-01-01T00:00:00.9999999999Z", 999_999),
            ("1970-01-01 05:30:00+0530", 0),
            ("9999-12-31T23:59:59-05:00", 253_402_318_799_000_000),
            ("0000-01-01T00:00:00+01:00", -62_167_222_800_000_000),
        ] {
            assert_eq!(microseconds(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn a_text_that_is_not_a_timestamp_gives_none() {
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
            "2024-01-01T24:00:00Z",
            "2024-01-01T10.5Z",
            "2024-01-01T10:30.5Z",
            "2024-01-01 12",
            "2024-01-01T1030",
            "2024-01-01T10:30:60Z",
            "2024-01-01T10:30:00.Z",
            "2024-01-01T10:30:00+1",
            "2024-01-01T10:30:00+é",
            "2024-01-01 00:00:00 UTC",
            "2024-01-01T00:00:00Z ",
            "２024-01-01",
            &long,
        ] {
            assert_eq!(microseconds(text), None, "{text}");
        }
    }
}
