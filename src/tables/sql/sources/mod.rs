//! kb.sources, and the tables that are attached: a file for the catalog, one for the tables' definitions, one for their rows, one for
//! how long they are left alone.

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

/// A text as a literal of SQL, under standard_conforming_strings.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
