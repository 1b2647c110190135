//! Works on many items of which some fail, so that a failing item does not affect the others.

use crate::error::{Error, Result};
use std::ops::Range;

/// Works on ranges of items. Where a range fails with an error that one item can cause (`is_of_one`), works
/// on its halves instead. Returns the results and the places of the items that fail. Any other error ends the
/// work. For n items of which f fail it tries about 2 f log2(n) ranges.
pub fn bisect<T>(
    count: usize,
    is_of_one: impl Fn(&Error) -> bool,
    mut work: impl FnMut(Range<usize>) -> Result<Vec<T>>,
) -> Result<(Vec<T>, Vec<usize>)> {
    let (mut found, mut failing) = (Vec::new(), Vec::new());
    let whole = 0..count;
    let mut ranges = vec![whole];
    while let Some(range) = ranges.pop() {
        match work(range.clone()) {
            Ok(rows) => found.extend(rows),
            Err(error) if !is_of_one(&error) => return Err(error),
            Err(_) if range.len() <= 1 => failing.extend(range),
            Err(_) => {
                let middle = range.start + range.len() / 2;
                ranges.push(middle..range.end);
                ranges.push(range.start..middle);
            }
        }
    }
    Ok((found, failing))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault() -> Error {
        Error::Internal("it fails".into())
    }

    #[test]
    fn failing_items_affect_no_other_and_cost_few_ranges() {
        let bad = [3, 700];
        let mut ranges = 0;
        let (found, failing) = bisect(
            1000,
            |_| true,
            |range| {
                ranges += 1;
                if bad.iter().any(|place| range.contains(place)) { Err(fault()) } else { Ok(range.collect()) }
            },
        )
        .unwrap();
        assert_eq!(failing, bad);
        assert_eq!(found, (0..1000).filter(|place| !bad.contains(place)).collect::<Vec<usize>>());
        assert!(ranges <= 4 * 11, "{ranges}");
        assert_eq!(bisect(0, |_| true, |range| Ok(range.collect::<Vec<_>>())).unwrap(), (vec![], vec![]));
    }

    #[test]
    fn an_error_that_no_item_caused_ends_the_work_at_once() {
        let mut ranges = 0;
        let result = bisect(
            8,
            |_| false,
            |_| -> Result<Vec<usize>> {
                ranges += 1;
                Err(fault())
            },
        );
        assert_eq!((result, ranges), (Err(fault()), 1));
    }
}
