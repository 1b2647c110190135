use super::*;

/// The most rows without an index.
const MOST_ROWS: u64 = 10_000;

fn segment(first: i32, last: i32, rows: u64) -> Segment {
    Segment { first, last, rows, is_draft: false }
}

fn build(first: i32, last: i32) -> Next {
    Next::Build { first, last }
}

#[test]
fn every_number_is_in_exactly_one_part() {
    let valid =
        vec![segment(9, 12, 1), segment(0, 3, 1), segment(0, 6, 1), segment(4, 6, 1), segment(10, 11, 1)];
    let covered = cover(valid);
    assert_eq!(covered, [segment(0, 6, 1), segment(9, 12, 1)]);
    assert_eq!(
        parts(&covered),
        [
            CoveredPart::Indexed { first: 0, last: 6 },
            CoveredPart::Rest { first: 7, last: 8 },
            CoveredPart::Indexed { first: 9, last: 12 },
            CoveredPart::Rest { first: 13, last: i32::MAX }
        ]
    );
    assert_eq!(parts(&[]), [CoveredPart::Rest { first: 0, last: i32::MAX }]);
    assert_eq!(parts(&[segment(0, i32::MAX, 5)]), [CoveredPart::Indexed { first: 0, last: i32::MAX }]);
    // Of any ranges.
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..2000 {
        let ranges = (0..random.u8(..7))
            .map(|_| {
                let first = random.i32(0..20);
                segment(first, first + random.i32(0..9), 1)
            })
            .collect();
        let parts = parts(&cover(ranges));
        for number in (0..40).chain([i32::MAX]) {
            let has = |part: &&CoveredPart| match **part {
                CoveredPart::Indexed { first, last } | CoveredPart::Rest { first, last } => {
                    (first..=last).contains(&number)
                }
            };
            assert_eq!(parts.iter().filter(has).count(), 1, "{number} in {parts:?}");
        }
    }
}

#[test]
fn covered_indexes_are_redundant_and_so_is_a_whole_one_beside_segments() {
    let valid = [segment(0, 6, 1), segment(4, 6, 1), segment(7, 9, 1)];
    assert!(is_redundant(&valid[1], &valid));
    assert!(!is_redundant(&valid[0], &valid) && !is_redundant(&valid[2], &valid));
    // A draft that was rebuilt for the same numbers, in either order.
    let draft = Segment { is_draft: true, rows: 5, ..segment(7, 9, 1) };
    for both in [[draft.clone(), valid[2].clone()], [valid[2].clone(), draft.clone()]] {
        assert!(is_redundant(&draft, &both) && !is_redundant(&valid[2], &both));
        assert_eq!(cover(both.to_vec()), [valid[2].clone()]);
    }
    assert!(!is_redundant(&draft, std::slice::from_ref(&draft)));
    let whole = segment(0, i32::MAX, 9);
    assert!(is_redundant(&whole, &[whole.clone(), segment(0, 3, 1)]));
    assert!(!is_redundant(&whole, std::slice::from_ref(&whole)));
    assert!(!is_redundant(&segment(0, 3, 1), &[whole, segment(0, 3, 1)]));
}

#[test]
fn a_table_gets_its_first_index_when_it_is_quiet_or_has_many_rows() {
    use Traffic::{Busy, Calm};
    assert_eq!(next(&[], 999, 9, 1000, MOST_ROWS, Calm), Next::Nothing);
    assert_eq!(next(&[], 1000, 9, 1000, MOST_ROWS, Calm), build(0, 9));
    assert_eq!(next(&[], 0, -1, 0, MOST_ROWS, Calm), Next::Nothing);
    assert_eq!(next(&[], 7499, 9, 1000, MOST_ROWS, Busy), Next::Nothing);
    assert_eq!(next(&[], 7500, 9, 1000, MOST_ROWS, Busy), build(0, 9));
    assert_eq!(next(&[], 20_000, 9, 30_000, MOST_ROWS, Busy), Next::Nothing);
}

#[test]
fn under_traffic_new_rows_get_an_index_and_only_small_segments_merge() {
    use Traffic::{Busy, Calm};
    let old = segment(0, 99, 1_000_000);
    assert_eq!(next(std::slice::from_ref(&old), 7499, 120, 1, MOST_ROWS, Busy), Next::Nothing);
    assert_eq!(next(std::slice::from_ref(&old), 7500, 120, 1, MOST_ROWS, Busy), build(100, 120));
    assert_eq!(next(std::slice::from_ref(&old), 7500, 120, 1, MOST_ROWS, Calm), build(100, 120));
    // When no more rows arrive, all get an index.
    assert_eq!(next(std::slice::from_ref(&old), 999, 120, 1, MOST_ROWS, Calm), Next::Nothing);
    assert_eq!(next(std::slice::from_ref(&old), 1000, 120, 1, MOST_ROWS, Calm), Next::WhenQuiet);
    assert_eq!(next(std::slice::from_ref(&old), 1000, 120, 1, MOST_ROWS, Traffic::Quiet), build(100, 120));
    let mut many = vec![old];
    many.extend((0..4).map(|i| segment(100 + i * 10, 109 + i * 10, 5000)));
    assert_eq!(next(&many[..4], 7500, 200, 1, MOST_ROWS, Busy), build(130, 200));
    assert_eq!(next(&many, 7500, 200, 1, MOST_ROWS, Busy), build(100, 200));
    // There are never very many segments.
    let mut many: Vec<Segment> = (0..17).map(|i| segment(i * 10, i * 10 + 9, 20_000)).collect();
    many[7].rows = 17_000;
    many[8].rows = 18_000;
    for (traffic, rest) in [(Busy, 50_000), (Calm, 50_000), (Calm, 0)] {
        assert_eq!(next(&many, rest, 200, 1, MOST_ROWS, traffic), build(70, 89));
    }
}

#[test]
fn large_segments_are_merged_when_it_is_quiet() {
    use Traffic::{Calm, Quiet};
    let cover = [segment(0, 9, 100_000), segment(10, 19, 70_000), segment(20, 29, 3000)];
    assert_eq!(next(&cover, 0, 29, 1, MOST_ROWS, Calm), Next::WhenQuiet);
    assert_eq!(next(&cover, 2000, 31, 1, MOST_ROWS, Calm), Next::WhenQuiet);
    assert_eq!(next(&cover, 7500, 31, 1, MOST_ROWS, Calm), build(30, 31));
    assert_eq!(next(&cover, 0, 29, 1, MOST_ROWS, Quiet), build(0, 29));
    // The merged segment includes the last rows.
    assert_eq!(next(&cover, 10, 31, 1, MOST_ROWS, Quiet), build(0, 31));
    let settled = [segment(0, 9, 100_000), segment(10, 19, 30_000)];
    assert_eq!(next(&settled, 999, 20, 1, MOST_ROWS, Quiet), Next::Nothing);
    assert_eq!(next(&settled, 1000, 20, 1, MOST_ROWS, Quiet), build(20, 20));
    let mut draft = settled;
    draft[1].is_draft = true;
    assert_eq!(next(&draft, 0, 20, 1, MOST_ROWS, Calm), Next::WhenQuiet);
    assert_eq!(next(&draft, 0, 20, 1, MOST_ROWS, Quiet), build(10, 20));
}

#[test]
fn an_index_for_the_whole_table_is_replaced_and_a_gap_is_closed() {
    for traffic in [Traffic::Busy, Traffic::Calm, Traffic::Quiet] {
        assert_eq!(next(&[segment(0, i32::MAX, 5)], 0, 7, 1, MOST_ROWS, traffic), build(0, 7));
        assert_eq!(
            next(&[segment(0, 5, 10), segment(9, 12, 10)], 0, 12, 1, MOST_ROWS, traffic),
            build(6, 12)
        );
        assert_eq!(next(&[segment(9, 12, 10)], 0, 12, 1, MOST_ROWS, traffic), build(0, 12));
    }
}

#[test]
fn a_build_under_traffic_is_bounded_unless_it_replaces_a_whole_index() {
    assert_eq!(draft_of_rest(&[], 100_000), Some(50_000));
    assert_eq!(draft_of_rest(&[segment(0, 5, 10)], 100_000), Some(50_000));
    assert_eq!(draft_of_rest(&[segment(0, i32::MAX, 1_000_000)], 100_000), None);
    // It is not one of the small segments that are soon merged.
    assert_eq!(draft_of_rest(&[], 10_000), Some(SMALL));
}

/// Applies steps until there are no more.
fn settle(cover: &mut Vec<Segment>, rest: &mut u64, last: i32, traffic: Traffic, built: &mut u64) {
    while let Next::Build { first, last } = next(cover, *rest, last, 1, MOST_ROWS, traffic) {
        let at = cover.iter().position(|segment| segment.first >= first).unwrap_or(cover.len());
        let mut rows: u64 = cover[at..].iter().filter(|segment| segment.last <= last).map(|s| s.rows).sum();
        let has_rest = cover.last().is_none_or(|newest| newest.last < last);
        rows += if has_rest { std::mem::take(rest) } else { 0 };
        cover.retain(|segment| segment.first < first || segment.last > last);
        cover.insert(at, segment(first, last, rows));
        *built += rows;
    }
}

#[test]
fn segments_stay_few_and_rows_are_rarely_rebuilt() {
    let (mut cover, mut rest, mut built, mut most) = (Vec::new(), 0, 0, 0);
    let total = 5000;
    for number in 0..total {
        rest += 1000;
        settle(&mut cover, &mut rest, number, Traffic::Busy, &mut built);
        most = most.max(cover.len());
        // An occasional pause.
        if number % 500 == 499 {
            settle(&mut cover, &mut rest, number, Traffic::Quiet, &mut built);
            assert!(cover.len() <= 8, "{cover:?}");
        }
        assert!(rest <= rest_while_busy(MOST_ROWS));
    }
    assert!(most <= 17, "{most}");
    let times = built as f64 / (total as f64 * 1000.0);
    assert!(times < 12.0, "each row was built {times} times");
}
