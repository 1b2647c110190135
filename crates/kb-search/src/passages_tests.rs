use super::super::{fuse, shape, test_candidate};
use super::*;
use crate::request::AnswerBounds;

const TEXT: &str = "One é is here.  Two is next.\n\nThree follows.\nFour is last.";

/// Chunks of a text, found in it one after the other, each extended to the left by `overlap` characters.
fn pieces(text: &str, parts: &[&str], overlap: usize) -> Vec<Piece> {
    let mut from = 0;
    let piece = |(ordinal, part): (usize, &&str)| {
        let byte = from + text[from..].find(part).unwrap();
        from = byte + part.len();
        let end = text[..from].chars().count();
        let start = text[..byte].chars().count().saturating_sub(overlap);
        let content: String = text.chars().take(end).skip(start).collect();
        Piece {
            chunk_id: uuid::Uuid::from_u128(ordinal as u128),
            ordinal: ordinal as i32,
            start: start as i32,
            end: end as i32,
            token_count: content.split_whitespace().count() as i32,
            content,
            headings: Vec::new(),
            gap: None,
        }
    };
    parts.iter().enumerate().map(piece).collect()
}

const PARTS: [&str; 4] = ["One é is here.", "Two is next.", "Three follows.", "Four is last."];

/// Hits at these chunks, best first.
fn hits(pieces: &[Piece], places: &[usize]) -> Vec<Hit> {
    let candidates = places.iter().enumerate().map(|(rank, place)| {
        let piece = &pieces[*place];
        let mut candidate = test_candidate(&piece.content, 0.9 - rank as f64 / 100.0, piece.token_count);
        candidate.chunk_id = piece.chunk_id;
        candidate.row.as_mut().unwrap().place.ordinal = piece.ordinal;
        candidate
    });
    let bounds = AnswerBounds { top_k: 100_000, min_score: -1e9, max_tokens: None, dedupe: false };
    shape::hits(shape::choose(fuse::of_one(candidates.collect()), &bounds), "kb", false)
}

/// The contents of the rows. Checks that each is the slice of the text that it claims to be.
fn rows(
    text: &str,
    pieces: Vec<Piece>,
    places: &[usize],
    around: Surroundings,
    most: Option<usize>,
) -> Vec<String> {
    let hits = hits(&pieces, places);
    let documents = HashMap::from([(1, verified(text, pieces))]);
    let rows = with_surroundings(hits, &documents, around, most);
    let tokens: i32 = rows.iter().map(|row| row.row.token_count).sum();
    assert!(most.is_none_or(|most| tokens as usize <= most), "{tokens} tokens");
    let mut ids = BTreeSet::new();
    for row in &rows {
        let (start, end) = (&row.row.locator["start_char"], &row.row.locator["end_char"]);
        let (start, end) = (start.as_u64().unwrap() as usize, end.as_u64().unwrap() as usize);
        assert_eq!(text.chars().take(end).skip(start).collect::<String>(), row.row.content);
        assert!(row.row.content.split_whitespace().count() <= row.row.token_count as usize);
        for id in row.row.locator["chunk_ids"].as_array().unwrap() {
            assert!(ids.insert(id.to_string()), "{id} is in two rows");
        }
    }
    rows.into_iter().map(|row| row.row.content).collect()
}

fn neighbors(neighbors: usize) -> Surroundings {
    Surroundings { neighbors, section: false }
}

#[test]
fn neighbors_are_joined_with_the_white_space_between_them() {
    let all = || pieces(TEXT, &PARTS, 0);
    assert_eq!(
        rows(TEXT, all(), &[1], neighbors(1), None),
        ["One é is here.  Two is next.\n\nThree follows."]
    );
    assert_eq!(rows(TEXT, all(), &[2], neighbors(9), None), [TEXT]);
    assert_eq!(rows(TEXT, all(), &[3, 0], neighbors(0), None), ["Four is last.", "One é is here."]);
}

#[test]
fn adjacent_chunks_are_one_row_without_repeated_text() {
    for overlap in [0, 3, 9] {
        let all = || pieces(TEXT, &PARTS, overlap);
        assert_eq!(rows(TEXT, all(), &[2, 1], neighbors(0), None).len(), 1, "{overlap}");
        assert_eq!(rows(TEXT, all(), &[0, 3], neighbors(1), None), [TEXT], "{overlap}");
    }
}

#[test]
fn a_row_has_the_place_of_its_best_hit() {
    let all = pieces(TEXT, &PARTS, 0);
    let found = hits(&all, &[3, 0, 1]);
    let best = found[1].chunk_id;
    let documents = HashMap::from([(1, verified(TEXT, all))]);
    let rows = with_surroundings(found, &documents, neighbors(0), None);
    assert_eq!(
        rows.iter().map(|row| row.row.content.as_str()).collect::<Vec<_>>(),
        ["Four is last.", "One é is here.  Two is next."]
    );
    assert_eq!((rows[1].chunk_id, rows[1].score), (best, Some(0.89)));
}

#[test]
fn of_an_edited_document_only_unchanged_chunks_are_joined() {
    let edited = TEXT.replace("Three follows", "Three is gone");
    let all = pieces(TEXT, &PARTS, 0);
    let found = hits(&all, &[1, 2, 3]);
    let documents = HashMap::from([(1, verified(&edited, all.clone()))]);
    let rows = with_surroundings(found, &documents, neighbors(2), None);
    // The third chunk is not in the text any more, and nothing is joined across it. The fourth is where it
    // was.
    let contents: Vec<&str> = rows.iter().map(|row| row.row.content.as_str()).collect();
    assert_eq!(contents, ["One é is here.  Two is next.", "Three follows.", "Four is last."]);
    assert_eq!(rows[1].row.locator, json!({}));
    // An edit at the beginning moves all chunks.
    assert!(verified(&format!("x{TEXT}"), all.clone()).is_empty());
    assert!(verified("", all).is_empty());
}

#[test]
fn nothing_is_joined_across_a_missing_chunk_or_uncounted_text() {
    let mut hidden = pieces(TEXT, &PARTS, 0);
    let all = hidden.clone();
    hidden.remove(1);
    let documents = HashMap::from([(1, verified(TEXT, hidden))]);
    let rows = with_surroundings(hits(&all, &[0]), &documents, neighbors(3), None);
    assert_eq!(rows[0].row.content, "One é is here.");
    let text = "One.<!-- a comment -->Two.";
    assert_eq!(rows2(text, &["One.", "Two."]), ["One."]);
    let text = format!("One.{}Two.", " ".repeat(MAX_GAP + 1));
    assert_eq!(rows2(&text, &["One.", "Two."]), ["One."]);
}

fn rows2(text: &str, parts: &[&str]) -> Vec<String> {
    rows(text, pieces(text, parts, 0), &[0], neighbors(1), None)
}

#[test]
fn surroundings_get_the_tokens_that_hits_leave_nearest_and_best_first() {
    let all = || pieces(TEXT, &PARTS, 0);
    // Chunks have 4, 3, 2 and 3 tokens. White space counts by characters.
    assert_eq!(rows(TEXT, all(), &[1], neighbors(2), Some(3)), ["Two is next."]);
    assert_eq!(rows(TEXT, all(), &[1], neighbors(2), Some(8)), ["Two is next.\n\nThree follows."]);
    assert_eq!(rows(TEXT, all(), &[2, 0], neighbors(1), Some(9)), ["Three follows.", "One é is here."]);
}

#[test]
fn the_document_of_the_better_hit_is_joined_first_with_the_tokens_left() {
    let all = pieces("One.  Two.", &["One.", "Two."], 0);
    let mut found = hits(&[all.clone(), all.clone()].concat(), &[2, 0, 1, 3]);
    for (hit, (document_id, number)) in found.iter_mut().zip([(2, 10), (1, 0), (1, 1), (2, 11)]) {
        hit.row.place.document_id = document_id;
        hit.chunk_id = uuid::Uuid::from_u128(number);
    }
    let mut others = all.clone();
    for piece in &mut others {
        piece.chunk_id = uuid::Uuid::from_u128(piece.chunk_id.as_u128() + 10);
    }
    let text = "One.  Two.";
    let documents = HashMap::from([(1, verified(text, all)), (2, verified(text, others))]);
    // Four chunks of one token each, and one gap of two.
    for _ in 0..50 {
        let rows = with_surroundings(found.clone(), &documents, neighbors(0), Some(6));
        let contents: Vec<(i64, &str)> =
            rows.iter().map(|row| (row.row.place.document_id, row.row.content.as_str())).collect();
        assert_eq!(contents, [(2, text), (1, "One."), (1, "Two.")]);
    }
}

#[test]
fn a_section_has_the_chunks_below_the_same_headings() {
    let text = "a b c d e f";
    let mut all = pieces(text, &["a", "b", "c", "d", "e", "f"], 0);
    for (piece, headings) in all.iter_mut().zip([&[][..], &["A"], &["A"], &["A", "B"], &["C"], &["A"]]) {
        piece.headings = headings.iter().map(|title| title.to_string()).collect();
    }
    let section = Surroundings { neighbors: 0, section: true };
    let of = |place: usize| rows(text, all.clone(), &[place], section, None).remove(0);
    assert_eq!([of(0), of(1), of(2), of(3), of(4), of(5)], ["a", "b c d", "b c d", "d", "e", "f"]);
    let both = Surroundings { neighbors: 1, section: true };
    assert_eq!(rows(text, all.clone(), &[2], both, None), ["b c d"]);
    assert_eq!(rows(text, all, &[3], both, None), ["c d e"]);
}

#[test]
fn sections_are_bounded_and_many_hits_of_one_document_are_quick() {
    let parts: Vec<String> = (0..4_000).map(|i| format!("w{i}.")).collect();
    let text = parts.join(" ");
    let all = pieces(&text, &parts.iter().map(String::as_str).collect::<Vec<_>>(), 0);
    let section = Surroundings { neighbors: 0, section: true };
    let one = rows(&text, all.clone(), &[2_000], section, None);
    assert_eq!(one[0].split(' ').count(), 2 * MAX_SECTION + 1);
    let begun = std::time::Instant::now();
    let every_second: Vec<usize> = (0..2_000).map(|i| i * 2).collect();
    assert!(rows(&text, all, &every_second, neighbors(100), None) == [text]);
    assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
}
