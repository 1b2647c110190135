//! kb.sources and the attached tables, with a file each for the catalog, the tables' definitions, their rows,
//! and the time for which they are left alone.

pub mod catalog;
pub mod reading_rests;
pub mod rows;
pub mod table;

pub use catalog::Source;

use std::ffi::CStr;

/// Settings under which values are printed the same in every session.
pub const PRINTED: &[(&CStr, &CStr)] = &[
    (c"DateStyle", c"ISO, YMD"),
    (c"IntervalStyle", c"postgres"),
    (c"TimeZone", c"UTC"),
    (c"extra_float_digits", c"1"),
    (c"bytea_output", c"hex"),
    (c"lc_monetary", c"C"),
];

/// A text as an SQL literal, under standard_conforming_strings.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
