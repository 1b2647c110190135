//! Tests that posting lists read back the same, headers bound them, and wrong bytes are detected.

use super::super::page::List;
use super::super::test_chunks::{postings_of, random_postings};
use super::*;
use fastrand::Rng;

/// Encodes all postings as one part.
fn encode(postings: &[Posting]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut lowest = 0;
    if postings.len() >= BLOCK {
        lowest = postings[0].chunk;
        put_number(&mut out, lowest.into());
    }
    for block in postings.chunks(BLOCK) {
        let mut columns = Columns::default();
        block.iter().for_each(|p| columns.push(*p));
        if block.len() == BLOCK {
            columns.put_block(&mut out, lowest);
        } else {
            columns.put_short(&mut out, lowest);
        }
        lowest = block[block.len() - 1].chunk + 1;
    }
    out
}

fn decode(count: usize, bytes: &[u8]) -> Result<Vec<Posting>, Corrupt> {
    let parts = vec![ListPart { count: count as u32, bytes }];
    postings_of(&List { df: 0, parts })
}

#[test]
fn postings_of_every_count_and_gap_come_back() {
    let mut random = Rng::with_seed(1);
    for count in [1, 2, 127, 128, 129, 256, 300, 1000] {
        for gap in [1.0, 2.0, 100.0, 1e5, 1e9] {
            let postings = random_postings(&mut random, count, gap);
            let bytes = encode(&postings);
            assert_eq!(decode(postings.len(), &bytes).unwrap(), postings);
        }
    }
}

#[test]
fn the_greatest_numbers_come_back() {
    let most = Posting { chunk: u32::MAX - 1, frequency: u32::MAX, length: u32::MAX };
    let least = Posting { chunk: 0, frequency: 1, length: 1 };
    assert_eq!(decode(2, &encode(&[least, most])).unwrap(), [least, most]);
    let mut block: Vec<_> = (0..BLOCK as u32 - 1).map(|chunk| Posting { chunk, ..least }).collect();
    block.push(most);
    assert_eq!(decode(BLOCK, &encode(&block)).unwrap(), block);
    let end: Vec<_> = (0..BLOCK as u32).map(|i| Posting { chunk: u32::MAX - 128 + i, ..most }).collect();
    assert_eq!(decode(BLOCK, &encode(&end)).unwrap(), end);
}

#[test]
fn a_header_bounds_its_block() {
    let mut random = Rng::with_seed(2);
    for _ in 0..50 {
        let count = random.usize(..700) + 1;
        let postings = random_postings(&mut random, count, 50.0);
        let bytes = encode(&postings);
        let mut blocks =
            PostingBlocks::new(ListPart { count: postings.len() as u32, bytes: &bytes }).unwrap();
        for expected in postings.chunks(BLOCK) {
            let block = blocks.next_block().unwrap().unwrap();
            assert_eq!(block.count(), expected.len());
            assert!(block.lowest <= expected[0].chunk);
            assert_eq!(block.last, expected.last().unwrap().chunk);
            assert_eq!(Some(block.max_frequency), expected.iter().map(|p| p.frequency).max());
            assert_eq!(Some(block.min_length), expected.iter().map(|p| p.length).min());
        }
        assert!(blocks.next_block().unwrap().is_none());
    }
}

#[test]
fn a_rare_term_costs_few_bytes() {
    let rare = Posting { chunk: 90_000, frequency: 1, length: 150 };
    assert_eq!(encode(&[rare]).len(), 5);
    let common: Vec<_> = (0..12_800).map(|chunk| Posting { chunk, frequency: 1, length: 150 }).collect();
    assert!(encode(&common).len() < 100 * 10, "{}", encode(&common).len());
}

#[test]
fn wide_deltas_that_wrap_around_are_corrupt() {
    let wide: Vec<_> =
        (0..BLOCK as u32).map(|i| Posting { chunk: i * 33_000_000, frequency: 1, length: 1 }).collect();
    let bytes = encode(&wide);
    assert!(decode(BLOCK, &bytes).is_ok());
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << bit;
            if let Ok(postings) = decode(BLOCK, &bytes) {
                assert!(postings.is_sorted_by(|a, b| a.chunk < b.chunk));
            }
        }
    }
}

#[test]
fn another_number_of_bytes_than_postings_is_corrupt() {
    let mut random = Rng::with_seed(3);
    for count in [1, 5, 128, 130] {
        let postings = random_postings(&mut random, count, 9.0);
        let mut bytes = encode(&postings);
        assert!(decode(count, &bytes[..bytes.len() - 1]).is_err());
        assert!(decode(count + 1, &bytes).is_err());
        bytes.push(1);
        assert!(decode(count, &bytes).is_err());
    }
}
