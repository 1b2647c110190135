//! Shows numbers as a workbook's number formats say (ECMA-376, 18.8.31), and dates by ISO 8601, because their
//! formats depend on the reader's language.

use calamine::ExcelDateTime;

/// A number in the format with this code.
pub fn number(value: f64, code: &str) -> String {
    let parts: Vec<String> = split(code);
    let (part, value) = match (value < 0.0, value == 0.0, parts.as_slice()) {
        (true, _, [_, negative, ..]) if !negative.is_empty() => (negative, -value),
        (_, true, [_, _, zero, ..]) if !zero.is_empty() => (zero, value),
        (_, _, [positive, ..]) => (positive, value),
        _ => return general(value),
    };
    let format = NumberFormat::read(part);
    let Some(digits) = format.digits.filter(|_| !format.is_general) else {
        return if format.is_general { general(value) } else { format.before };
    };
    let value = value * format.factor;
    let mut text = format!("{:.*}", digits.decimals, value.abs());
    if digits.decimals > digits.least_decimals {
        let shortest = text.len() - (digits.decimals - digits.least_decimals);
        let kept = text.trim_end_matches('0').len().max(shortest);
        text.truncate(kept);
        text.truncate(text.trim_end_matches('.').len());
    }
    if digits.has_thousands {
        text = with_thousands(&text);
    }
    let is_zero = text.chars().all(|c| !c.is_ascii_digit() || c == '0');
    let sign = if value < 0.0 && !is_zero { "-" } else { "" };
    format!("{sign}{}{text}{}", format.before, format.after).trim().to_string()
}

/// A number without a format. Workbooks show at most 15 digits.
pub fn general(value: f64) -> String {
    let rounded: f64 = format!("{value:.14e}").parse().unwrap_or(value);
    match rounded.abs() {
        size if size != 0.0 && !(1e-9..1e15).contains(&size) => format!("{rounded:e}"),
        _ => rounded.to_string(),
    }
}

/// A date, a time or both: what the format shows, or without a format what the value has.
pub fn date(value: &ExcelDateTime, code: Option<&str>) -> String {
    if value.is_duration() {
        let seconds = (value.as_f64() * 86_400.0).round();
        let (sign, seconds) = (if seconds < 0.0 { "-" } else { "" }, seconds.abs() as u64);
        return format!("{sign}{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    }
    let (year, month, day, hour, minute, second, _) = value.to_ymd_hms_milli();
    let shows = |letters: [char; 2]| {
        code.map(|code| plain(code).to_ascii_lowercase().contains(letters)).filter(|_| code.is_some())
    };
    let (has_date, has_time) = (value.as_f64() >= 1.0, value.as_f64().fract() != 0.0);
    let shows_time = shows(['h', 's']).unwrap_or(has_time);
    let shows_date = shows(['y', 'd']).unwrap_or(has_date) || !shows_time;
    let date = format!("{year:04}-{month:02}-{day:02}");
    let time = match second {
        0 => format!("{hour:02}:{minute:02}"),
        second => format!("{hour:02}:{minute:02}:{second:02}"),
    };
    match (shows_date, shows_time) {
        (true, true) => format!("{date} {time}"),
        (false, true) => time,
        _ => date,
    }
}

#[derive(Debug, Default)]
struct NumberFormat {
    is_general: bool,
    /// The text before and after the digits.
    before: String,
    after: String,
    digits: Option<Digits>,
    /// What the number is multiplied by.
    factor: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Digits {
    decimals: usize,
    least_decimals: usize,
    has_thousands: bool,
}

impl NumberFormat {
    fn read(part: &str) -> NumberFormat {
        let mut format = NumberFormat { factor: 1.0, ..NumberFormat::default() };
        let mut digits: Option<Digits> = None;
        let (mut is_after_point, mut pending_commas) = (false, 0);
        let mut characters = part.chars();
        while let Some(c) = characters.next() {
            let mut literal = String::new();
            match c {
                '0' | '#' | '?' => {
                    let digits = digits.get_or_insert_default();
                    digits.has_thousands |= pending_commas > 0;
                    pending_commas = 0;
                    if is_after_point {
                        digits.decimals += 1;
                        if c == '0' {
                            digits.least_decimals = digits.decimals;
                        }
                    }
                }
                '.' if digits.is_some() || characters.as_str().starts_with(['0', '#', '?']) => {
                    digits.get_or_insert_default();
                    is_after_point = true;
                }
                ',' => pending_commas += i32::from(digits.is_some()),
                '%' => {
                    format.factor *= 100.0;
                    literal.push('%');
                }
                '"' => literal.extend(characters.by_ref().take_while(|c| *c != '"')),
                '\\' => literal.extend(characters.next()),
                '_' => {
                    characters.next();
                    literal.push(' ');
                }
                '*' => drop(characters.next()),
                '[' => {
                    let bracket: String = characters.by_ref().take_while(|c| *c != ']').collect();
                    // The symbol of a currency, and a language.
                    let symbol = bracket.strip_prefix('$').and_then(|rest| rest.split('-').next());
                    literal.push_str(symbol.unwrap_or_default());
                }
                // Other notations are shown as if there were no format.
                'E' | 'e' | '/' | 'G' | 'g' | '@' => {
                    format.is_general = true;
                    return format;
                }
                c => literal.push(c),
            }
            if digits.is_some() { format.after.push_str(&literal) } else { format.before.push_str(&literal) }
        }
        // Commas after the last digit divide by a thousand each.
        format.factor *= 1000_f64.powi(-pending_commas);
        format.digits = digits.map(|digits| Digits { decimals: digits.decimals.min(15), ..digits });
        if let Some(digits) = &mut format.digits {
            digits.least_decimals = digits.least_decimals.min(digits.decimals);
        }
        format
    }
}

/// The parts of a format for positive numbers, negative numbers and zero.
fn split(code: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let (mut is_quoted, mut is_escaped) = (false, false);
    for c in code.chars() {
        if c == ';' && !is_quoted && !is_escaped {
            parts.push(String::new());
            continue;
        }
        is_quoted ^= c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    parts
}

/// A format without its literal text.
fn plain(code: &str) -> String {
    let mut text = String::new();
    let mut characters = code.chars();
    while let Some(c) = characters.next() {
        match c {
            '"' => drop(characters.by_ref().find(|c| *c == '"')),
            '[' => drop(characters.by_ref().find(|c| *c == ']')),
            '\\' | '_' | '*' => drop(characters.next()),
            c => text.push(c),
        }
    }
    text
}

fn with_thousands(number: &str) -> String {
    let (whole, rest) = number.find('.').map_or((number, ""), |at| number.split_at(at));
    let mut text = String::new();
    for (index, c) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(c);
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use calamine::ExcelDateTimeType;

    #[test]
    fn numbers_are_shown_in_their_formats() {
        for (value, code, expected) in [
            (0.256, "0%", "26%"),
            (0.256, "0.0%", "25.6%"),
            (1234567.891, "#,##0.00", "1,234,567.89"),
            (-1234.5, "#,##0.00;(#,##0.00)", "(1,234.50)"),
            (-1234.5, "#,##0.00_);[Red]\\(#,##0.00\\)", "(1,234.50)"),
            (12.0, "[$€-407] #,##0.00", "€ 12.00"),
            (12.0, "\"$\"#,##0", "$12"),
            (5.0, "0\" kg\"", "5 kg"),
            (0.0, "0.00;-0.00;\"-\"", "-"),
            (12_345_678.0, "0.0,,", "12.3"),
            (1.5, "0.0##", "1.5"),
            (0.1 + 0.2, "General", "0.3"),
            (7.0, "General", "7"),
            (-0.001, "0.00", "0.00"),
            (1e20, "General", "1e20"),
            (0.5, "# ?/?", "0.5"),
            (3.0, "@", "3"),
        ] {
            assert_eq!(number(value, code), expected, "{value} as {code}");
        }
    }

    #[test]
    fn dates_show_what_their_formats_show() {
        let at = |value| ExcelDateTime::new(value, ExcelDateTimeType::DateTime, false);
        assert_eq!(date(&at(45_352.0), Some("dd/mm/yyyy")), "2024-03-01");
        assert_eq!(date(&at(45_352.5), Some("d.m.yy")), "2024-03-01");
        assert_eq!(date(&at(45_352.5), Some("d.m.yy h:mm")), "2024-03-01 12:00");
        assert_eq!(date(&at(45_352.5), Some("h:mm:ss")), "12:00");
        assert_eq!(date(&at(45_352.0), Some("mmm")), "2024-03-01");
        assert_eq!(date(&at(45_352.5), None), "2024-03-01 12:00");
        assert_eq!(date(&at(0.5), None), "12:00");
        let duration = ExcelDateTime::new(1.5, ExcelDateTimeType::TimeDelta, false);
        assert_eq!(date(&duration, Some("[h]:mm")), "36:00:00");
    }
}
