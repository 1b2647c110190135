//! Joins chunks that are adjacent in a document to passages, each of which is exactly a slice of the
//! document's text.

use kb_types::Hit;
use kb_types::answer_settings::Surroundings;
use kb_types::passage::Piece;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};

/// The most chunks that a section adds on each side.
pub const MAX_SECTION: usize = 50;

/// The most characters between two chunks that are joined. Chunkers leave out only white space, and little of
/// it.
const MAX_GAP: usize = 200;

/// Keeps the chunks of one document, given in order, that are slices of its current text, and sets the text
/// between each and the next. If the document was edited and has not been split again, these are the chunks
/// before the edit.
pub fn verified(text: &str, mut pieces: Vec<Piece>) -> Vec<Piece> {
    let mut characters: Vec<i32> = pieces.iter().flat_map(|piece| [piece.start, piece.end]).collect();
    characters.sort_unstable();
    characters.dedup();
    // The byte offsets of these characters, found in one pass.
    let mut bytes: HashMap<i32, usize> = HashMap::with_capacity(characters.len());
    let mut wanted = characters.into_iter().peekable();
    for (character, byte) in (0..).zip(text.char_indices().map(|(byte, _)| byte).chain([text.len()])) {
        let Some(next) = wanted.peek() else { break };
        if *next == character {
            bytes.insert(character, byte);
            wanted.next();
        }
    }
    let slice = |start: i32, end: i32| text.get(*bytes.get(&start)?..*bytes.get(&end)?);
    pieces.retain(|piece| slice(piece.start, piece.end) == Some(piece.content.as_str()));
    for i in 1..pieces.len() {
        let (before, next) = (&pieces[i - 1], &pieces[i]);
        // Between them is a chunk that the caller may not read, or that is disabled.
        if before.ordinal + 1 != next.ordinal || next.start < before.start || next.end < before.end {
            continue;
        }
        let gap = if next.start <= before.end { Some("") } else { slice(before.end, next.start) };
        let is_space = |gap: &&str| gap.len() <= MAX_GAP && gap.trim().is_empty();
        pieces[i - 1].gap = gap.filter(is_space).map(str::to_string);
    }
    pieces
}

/// Adds to hits, which come best first, the chunks around them: `neighbors` chunks on both sides, and the
/// other chunks of the section, as long as they are consecutive. Adjacent chunks become one row, in the place
/// of its best hit. `max_tokens` limits all rows together. Hits have priority over surroundings, and the
/// surroundings of better hits, the nearest first, over others. `documents` has the verified chunks by
/// document. A hit that is not among them is left unchanged.
pub fn with_surroundings(
    hits: Vec<Hit>,
    documents: &HashMap<i64, Vec<Piece>>,
    surroundings: Surroundings,
    max_tokens: Option<usize>,
) -> Vec<Hit> {
    let tokens: usize = hits.iter().map(|hit| hit.row.token_count.max(0) as usize).sum();
    let mut budget = Budget(max_tokens.map(|most| most.saturating_sub(tokens)));
    // The chunks of each document that are in the answer, and the best hit of each chunk that is a hit.
    let mut taken: HashMap<i64, Taken> = HashMap::new();
    let mut best: HashMap<(i64, usize), usize> = HashMap::new();
    let places: Vec<Option<usize>> = hits.iter().map(|hit| place(hit, documents)).collect();
    for (rank, (hit, place)) in hits.iter().zip(&places).enumerate() {
        if let Some(place) = place {
            taken.entry(hit.row.place.document_id).or_default().places.insert(*place);
            best.entry((hit.row.place.document_id, *place)).or_insert(rank);
        }
    }
    for (hit, place) in hits.iter().zip(&places) {
        let document_id = hit.row.place.document_id;
        if let (Some(place), Some(pieces), Some(taken)) =
            (place, documents.get(&document_id), taken.get_mut(&document_id))
        {
            surround(pieces, *place, surroundings, taken, &mut budget);
        }
    }
    let mut rows: Vec<(usize, Hit)> = Vec::new();
    // Documents come in the order of their best hits, because joining spends tokens that others then lack.
    let in_order: Vec<i64> = hits.iter().map(|hit| hit.row.place.document_id).collect();
    let mut hits: Vec<Option<Hit>> = hits.into_iter().map(Some).collect();
    for document_id in in_order {
        let (Some(pieces), Some(taken)) = (documents.get(&document_id), taken.remove(&document_id)) else {
            continue;
        };
        for run in runs(pieces, &taken, &mut budget) {
            let ranks = run.clone().filter_map(|place| best.get(&(document_id, place)).copied());
            let ranks: Vec<usize> = ranks.collect();
            let Some(first) = ranks.iter().min().copied() else { continue };
            let own = hits[first].take();
            ranks.iter().for_each(|rank| hits[*rank] = None);
            rows.extend(own.map(|hit| (first, passage(hit, &pieces[run]))));
        }
    }
    let alone = hits.into_iter().enumerate().filter_map(|(rank, hit)| Some((rank, hit?)));
    rows.extend(alone);
    rows.sort_by_key(|(rank, _)| *rank);
    rows.into_iter().map(|(_, hit)| hit).collect()
}

/// The chunks of a document that are in the answer, by their places.
#[derive(Default)]
struct Taken {
    places: BTreeSet<usize>,
    /// The places of the chunks after which the gap is in the answer, too.
    gaps: BTreeSet<usize>,
}

/// How many tokens may still be used. None means any number.
struct Budget(Option<usize>);

impl Budget {
    fn spend(&mut self, tokens: usize) -> bool {
        match &mut self.0 {
            None => true,
            Some(left) => left.checked_sub(tokens).map(|rest| *left = rest).is_some(),
        }
    }
}

/// The place of a hit among the verified chunks of its document, which are in order.
fn place(hit: &Hit, documents: &HashMap<i64, Vec<Piece>>) -> Option<usize> {
    let pieces = documents.get(&hit.row.place.document_id)?;
    let place = pieces.binary_search_by_key(&hit.row.place.ordinal, |piece| piece.ordinal).ok()?;
    (pieces[place].chunk_id == hit.chunk_id).then_some(place)
}

fn tokens(piece: &Piece) -> usize {
    piece.token_count.max(0) as usize
}

/// Counts a token for each character, which is more than white space has.
fn gap_tokens(piece: &Piece) -> usize {
    piece.gap.as_ref().map_or(0, |gap| gap.chars().count())
}

/// Takes the chunks around a chunk, alternating between both sides.
fn surround(
    pieces: &[Piece],
    place: usize,
    surroundings: Surroundings,
    taken: &mut Taken,
    budget: &mut Budget,
) {
    let headings = &pieces[place].headings;
    // The section of a chunk without a heading consists of the chunks without headings.
    let in_section = |piece: &Piece| match headings.is_empty() {
        true => piece.headings.is_empty(),
        false => piece.headings.starts_with(headings),
    };
    let most = surroundings.neighbors.max(if surroundings.section { MAX_SECTION } else { 0 });
    // Whether each side continues, and whether it is still in the section.
    let (mut goes_on, mut is_section) = ([true; 2], [surroundings.section; 2]);
    for distance in 1..=most {
        for side in 0..2 {
            let next = if side == 0 { place.checked_sub(distance) } else { Some(place + distance) };
            let piece = next.and_then(|next| Some((next, pieces.get(next)?)));
            let Some((next, piece)) = piece.filter(|_| goes_on[side]) else {
                goes_on[side] = false;
                continue;
            };
            is_section[side] &= in_section(piece) && distance <= MAX_SECTION;
            let gap = if side == 0 { next } else { next - 1 };
            let is_wanted = distance <= surroundings.neighbors || is_section[side];
            let more = if taken.places.contains(&next) { 0 } else { tokens(piece) };
            let more = more + if taken.gaps.contains(&gap) { 0 } else { gap_tokens(&pieces[gap]) };
            goes_on[side] = is_wanted && pieces[gap].gap.is_some() && budget.spend(more);
            if goes_on[side] {
                taken.places.insert(next);
                taken.gaps.insert(gap);
            }
        }
    }
}

/// The runs of adjacent chunks, as ranges of places.
fn runs(pieces: &[Piece], taken: &Taken, budget: &mut Budget) -> Vec<std::ops::Range<usize>> {
    let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
    for &place in &taken.places {
        match runs.last_mut() {
            Some(run)
                if run.end == place
                    && pieces[place - 1].gap.is_some()
                    && (taken.gaps.contains(&(place - 1))
                        || budget.spend(gap_tokens(&pieces[place - 1]))) =>
            {
                run.end = place + 1;
            }
            _ => runs.push(place..place + 1),
        }
    }
    runs
}

/// The row of the chunks of one run. Its token_count is the sum over its chunks, which is at least the count
/// of its text.
fn passage(mut hit: Hit, pieces: &[Piece]) -> Hit {
    let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return hit };
    let mut content = String::new();
    let (mut reach, mut count) = (first.start, 0);
    for (i, piece) in pieces.iter().enumerate() {
        let known = (reach - piece.start).max(0) as usize;
        content.extend(piece.content.chars().skip(known));
        reach = reach.max(piece.end);
        count += tokens(piece);
        if i + 1 < pieces.len() {
            content.push_str(piece.gap.as_deref().unwrap_or_default());
            count += gap_tokens(piece);
            reach = reach.max(pieces[i + 1].start);
        }
    }
    if let Value::Object(locator) = &mut hit.row.locator {
        let ids: Vec<String> = pieces.iter().map(|piece| piece.chunk_id.to_string()).collect();
        locator.insert("start_char".into(), json!(first.start));
        locator.insert("end_char".into(), json!(last.end));
        locator.insert("chunk_ids".into(), json!(ids));
    }
    (hit.row.place.start, hit.row.place.end) = (first.start, last.end);
    hit.row.token_count = i32::try_from(count).unwrap_or(i32::MAX);
    hit.row.content = content;
    hit
}

#[cfg(test)]
#[path = "passages_tests.rs"]
mod tests;
