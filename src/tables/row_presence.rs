//! Which rows of attached tables exist. A row that cannot be read does not affect the others.

use crate::pg::subtransaction::in_subtransaction;
use crate::tables::sql::sources::{Source, rows};
use kb_types::bisect::bisect;
use kb_types::error::{Error, Result};
use kb_types::row_key;
use std::ops::Range;

/// The SQLSTATE classes of errors that the values of a row do not cause: connection, serialisation,
/// resources, intervention, system, internal.
const NOT_OF_A_ROW: &[&str] = &["08", "25", "40", "53", "55", "57", "58", "XX"];

/// The outcome for the requested rows, by their places.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct RowPresence {
    /// These rows do not exist, are not published, or are not visible to the table's owner.
    pub absent: Vec<usize>,
    /// Reading these rows raises an error.
    pub unreadable: Vec<usize>,
}

/// Looks for rows, given by tenant and external_id. Returns an error if no row can be read.
pub fn presence(source: &Source, names: &[(&str, &str)]) -> Result<RowPresence> {
    let key =
        |(_, external_id): &(&str, &str)| row_key::decode(external_id, source.key.len()).unwrap_or_default();
    let keys: Vec<Vec<String>> = names.iter().map(key).collect();
    let (there, unreadable) = read_apart(keys.len(), |range| {
        let found = rows::existing(source, &keys[range.clone()])?;
        Ok(found.into_iter().map(|(place, tenant)| (range.start + place, tenant)).collect())
    })?;
    let mut is_known = vec![false; names.len()];
    for (place, tenant) in there {
        is_known[place] |= tenant.is_none_or(|tenant| tenant == names[place].0);
    }
    unreadable.iter().for_each(|place| is_known[*place] = true);
    let absent = (0..names.len()).filter(|place| !is_known[*place]).collect();
    Ok(RowPresence { absent, unreadable })
}

/// Reads rows by ranges of their places, each in a subtransaction. If one of them cannot be read, the range
/// is halved. Returns what was read, and the places of the rows that cannot be read. An error that no row
/// causes ends the work: a missing column or right, a lock, a cancellation.
pub fn read_apart<T>(
    count: usize,
    mut read: impl FnMut(Range<usize>) -> Result<Vec<T>>,
) -> Result<(Vec<T>, Vec<usize>)> {
    bisect(count, is_of_a_row, |range| in_subtransaction(|| read(range)))
}

fn is_of_a_row(error: &Error) -> bool {
    !error.is_of_names()
        && matches!(error, Error::Database { sqlstate, .. }
            if !NOT_OF_A_ROW.iter().any(|class| sqlstate.starts_with(class)))
}
