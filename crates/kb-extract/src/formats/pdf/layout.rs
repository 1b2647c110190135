//! The text of a page from the places of its glyphs: words by the gaps between glyphs, lines by their
//! baselines, columns by the white between them, paragraphs and headings by distance and size. Spaces of the
//! file are ignored, as pdftotext does, because many programs place words without them.

use crate::sections::escape;
use pdf_oxide::layout::{FontWeight, TextChar};
use std::collections::BTreeMap;
use unicode_normalization::char::compose;

/// What is wider than this part of the font's size is a space.
const SPACE: f32 = 0.1;
/// How many lines back a glyph may belong to. Glyphs come from top to bottom.
const OPEN_LINES: usize = 8;
/// How many lines of text two columns have at least.
const COLUMN_LINES: usize = 6;
/// How often columns may be divided.
const MOST_DIVISIONS: usize = 8;
/// A heading is larger than the text by this factor, and has at most so many bytes.
const HEADING: f32 = 1.15;
const MOST_HEADING: usize = 200;

/// A glyph, or several that are one character. `y` is its baseline, and grows upwards.
#[derive(Debug, Clone)]
pub struct Glyph {
    text: char,
    x: f32,
    y: f32,
    width: f32,
    size: f32,
    is_bold: bool,
}

impl Glyph {
    fn end(&self) -> f32 {
        self.x + self.width
    }
}

/// Glyphs of one baseline, from left to right.
#[derive(Debug, Clone)]
struct Line {
    y: f32,
    size: f32,
    glyphs: Vec<Glyph>,
}

impl Line {
    fn left(&self) -> f32 {
        self.glyphs.first().map_or(0.0, |glyph| glyph.x)
    }

    fn right(&self) -> f32 {
        self.glyphs.iter().map(Glyph::end).fold(f32::MIN, f32::max)
    }

    /// How far two lines overlap, of the lower one's height: letters with superscripts are one line.
    fn overlap(&self, glyph: &Glyph) -> f32 {
        let top = (self.y + 0.75 * self.size).min(glyph.y + 0.75 * glyph.size);
        let bottom = (self.y - 0.2 * self.size).max(glyph.y - 0.2 * glyph.size);
        (top - bottom) / (0.95 * self.size.min(glyph.size))
    }

    /// The parts left and right of a place that no glyph covers.
    fn split(self, at: f32) -> (Option<Self>, Option<Self>) {
        let (y, size) = (self.y, self.size);
        let (left, right): (Vec<_>, Vec<_>) = self.glyphs.into_iter().partition(|glyph| glyph.end() <= at);
        let line = |glyphs: Vec<Glyph>| (!glyphs.is_empty()).then_some(Line { y, size, glyphs });
        (line(left), line(right))
    }

    fn is_covered(&self, at: f32) -> bool {
        self.glyphs.iter().any(|glyph| glyph.x < at && at < glyph.end())
            // A word may begin or end there, but a line of words goes on.
            || self.glyphs.windows(2).any(|pair| {
                pair[0].end() <= at && at <= pair[1].x && pair[1].x - pair[0].end() < self.size
            })
    }

    fn text(&self) -> String {
        let mut text = String::with_capacity(self.glyphs.len() + 16);
        let mut before: Option<&Glyph> = None;
        let mut end = f32::MIN;
        for glyph in in_reading_direction(&self.glyphs) {
            let gap = match before {
                Some(before) if glyph.x < before.x => before.x - glyph.end(),
                Some(_) => glyph.x - end,
                None => 0.0,
            };
            if before.is_some_and(|before| gap > SPACE * glyph.size.min(before.size)) {
                text.push(' ');
            }
            text.push(glyph.text);
            let goes_back = before.is_some_and(|before| glyph.x < before.x);
            end = if goes_back { glyph.end() } else { end.max(glyph.end()) };
            before = Some(glyph);
        }
        text
    }

    fn is_bold(&self) -> bool {
        self.glyphs.iter().filter(|glyph| glyph.is_bold).count() * 2 > self.glyphs.len()
    }
}

/// The size that most glyphs of some pages have: that of their text.
pub fn usual_size(glyphs: impl IntoIterator<Item = TextChar>) -> Option<f32> {
    let mut counts = BTreeMap::<u32, usize>::new();
    for glyph in glyphs {
        // Tenths of a point.
        *counts.entry((glyph.font_size * 10.0) as u32).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(_, count)| *count).map(|(size, _)| size as f32 / 10.0)
}

/// The text of a page in HTML, whose lines become headings if they are larger than `usual`.
pub fn html(glyphs: &[TextChar], usual: Option<f32>) -> String {
    let mut html = String::new();
    for glyphs in by_direction(glyphs) {
        let lines = lines(glyphs);
        let usual = usual.unwrap_or_else(|| lines.first().map_or(0.0, |line| line.size));
        for column in columns(lines, MOST_DIVISIONS) {
            push_column(&mut html, &column, usual);
        }
    }
    html
}

/// The glyphs of each direction of writing, as if it were horizontal, what there is most of first.
fn by_direction(glyphs: &[TextChar]) -> Vec<Vec<Glyph>> {
    let mut directions = BTreeMap::<i32, Vec<Glyph>>::new();
    for glyph in glyphs {
        let is_placed = [glyph.origin_x, glyph.origin_y, glyph.advance_width, glyph.font_size];
        let is_placed = is_placed.iter().all(|number| number.is_finite()) && glyph.font_size > 0.0;
        let degrees = (glyph.rotation_degrees.round() as i32).rem_euclid(360);
        // The library gives the width along the page, not along the line: without it, spaces are believed.
        let is_wide = degrees == 0 || glyph.advance_width > 0.2 * glyph.font_size;
        if !is_placed
            || glyph.char.is_control()
            || glyph.char == '\u{feff}'
            || is_wide && glyph.char.is_whitespace()
        {
            continue;
        }
        let (sin, cos) = (degrees as f32).to_radians().sin_cos();
        directions.entry(degrees).or_default().push(Glyph {
            text: if glyph.char.is_whitespace() { ' ' } else { glyph.char },
            x: glyph.origin_x * cos + glyph.origin_y * sin,
            y: glyph.origin_y * cos - glyph.origin_x * sin,
            width: if is_wide { glyph.advance_width.max(0.0) } else { glyph.font_size },
            size: glyph.font_size,
            is_bold: glyph.font_weight != FontWeight::Normal,
        });
    }
    let mut directions: Vec<_> = directions.into_values().collect();
    directions.sort_by_key(|glyphs| std::cmp::Reverse(glyphs.len()));
    directions
}

/// The lines of a page, from top to bottom.
fn lines(mut glyphs: Vec<Glyph>) -> Vec<Line> {
    glyphs.sort_by(|a, b| b.y.total_cmp(&a.y).then(a.x.total_cmp(&b.x)));
    let mut lines = Vec::<Line>::new();
    for glyph in glyphs {
        let open = lines.len().saturating_sub(OPEN_LINES);
        let overlaps = lines[open..].iter().map(|line| line.overlap(&glyph)).enumerate();
        let best = overlaps.filter(|(_, overlap)| *overlap > 0.5).max_by(|a, b| a.1.total_cmp(&b.1));
        if let Some((line, _)) = best {
            let line = &mut lines[open + line];
            if glyph.size > line.size {
                (line.y, line.size) = (glyph.y, glyph.size);
            }
            line.glyphs.push(glyph);
        } else {
            lines.push(Line { y: glyph.y, size: glyph.size, glyphs: vec![glyph] });
        }
    }
    for line in &mut lines {
        line.glyphs.sort_by(|a, b| a.x.total_cmp(&b.x));
        compose_accents(&mut line.glyphs);
        // Some programs print a letter twice to make it bold.
        line.glyphs.dedup_by(|next, before| {
            next.text == before.text
                && (next.x - before.x).abs() < 0.1 * next.size
                && next.width > 0.2 * next.size
        });
    }
    lines.sort_by(|a, b| b.y.total_cmp(&a.y));
    lines
}

/// TeX and others print an accent and the letter below it.
fn compose_accents(glyphs: &mut Vec<Glyph>) {
    let mut is_gone = vec![false; glyphs.len()];
    for at in 0..glyphs.len() {
        let accent = &glyphs[at];
        let Some(combining) = combining(accent.text) else { continue };
        let middle = accent.x + accent.width / 2.0;
        let composed = [at.checked_add(1), at.checked_sub(1)].into_iter().flatten().find_map(|place| {
            let letter = glyphs.get(place).filter(|_| !is_gone[place])?;
            let slack = 0.05 * letter.size;
            let is_below = letter.x - slack <= middle && middle <= letter.end() + slack;
            let base = match letter.text {
                'ı' => 'i',
                'ȷ' => 'j',
                letter => letter,
            };
            Some((place, compose(base, combining).filter(|_| is_below)?))
        });
        if let Some((place, composed)) = composed {
            glyphs[place].text = composed;
            is_gone[at] = true;
        }
    }
    let mut is_gone = is_gone.into_iter();
    glyphs.retain(|_| !is_gone.next().unwrap_or_default());
}

fn combining(accent: char) -> Option<char> {
    Some(match accent {
        '`' => '\u{300}',
        '´' => '\u{301}',
        'ˆ' | '^' => '\u{302}',
        '˜' | '~' => '\u{303}',
        '¯' => '\u{304}',
        '˘' => '\u{306}',
        '˙' => '\u{307}',
        '¨' => '\u{308}',
        '˚' => '\u{30a}',
        '˝' => '\u{30b}',
        'ˇ' => '\u{30c}',
        '¸' => '\u{327}',
        '˛' => '\u{328}',
        _ => return None,
    })
}

/// Arabic and Hebrew letters are placed from right to left, numbers among them from left to right.
fn in_reading_direction(glyphs: &[Glyph]) -> Vec<&Glyph> {
    let is_leftwards = |c: char| {
        matches!(c, '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{fefc}')
            && !c.is_numeric()
    };
    let mut ordered: Vec<&Glyph> = glyphs.iter().collect();
    let leftwards = ordered.iter().filter(|glyph| is_leftwards(glyph.text)).count();
    if leftwards == 0 {
        return ordered;
    }
    let is_rightwards = |c: char| c.is_alphabetic() && !is_leftwards(c);
    let rightwards = ordered.iter().filter(|glyph| is_rightwards(glyph.text)).count();
    let is_against: &dyn Fn(char) -> bool = if leftwards >= rightwards {
        ordered.reverse();
        &|c: char| c.is_alphanumeric() && !is_leftwards(c)
    } else {
        &is_leftwards
    };
    for run in ordered.chunk_by_mut(|a, b| is_against(a.text) == is_against(b.text)) {
        if run.first().is_some_and(|glyph| is_against(glyph.text)) {
            run.reverse();
        }
    }
    ordered
}

/// The columns of a page one after the other. Lines that reach across columns divide them.
fn columns(lines: Vec<Line>, divisions: usize) -> Vec<Vec<Line>> {
    let Some(gutter) = (divisions > 0).then(|| gutter(&lines)).flatten() else { return vec![lines] };
    let mut columns = Vec::new();
    for band in bands(lines, gutter) {
        match band {
            Band::Across(lines) => columns.push(lines),
            Band::Columns(left, right) => {
                columns.extend(self::columns(left, divisions - 1));
                columns.extend(self::columns(right, divisions - 1));
            }
        }
    }
    columns
}

enum Band {
    /// Lines that go on from one column to the next, or too few to be columns.
    Across(Vec<Line>),
    Columns(Vec<Line>, Vec<Line>),
}

/// The parts of a page above each other: where lines cross the gutter, and where they do not.
fn bands(lines: Vec<Line>, gutter: f32) -> Vec<Band> {
    let mut bands = Vec::new();
    let mut open = Vec::new();
    let mut across = Vec::new();
    for line in lines {
        if line.is_covered(gutter) {
            if !open.is_empty() {
                bands.push(divided(std::mem::take(&mut open), gutter));
            }
            across.push(line);
        } else {
            if !across.is_empty() {
                bands.push(Band::Across(std::mem::take(&mut across)));
            }
            open.push(line);
        }
    }
    if !across.is_empty() {
        bands.push(Band::Across(across));
    }
    if !open.is_empty() {
        bands.push(divided(open, gutter));
    }
    bands
}

/// Two columns, if both are text; else these lines as they are.
fn divided(lines: Vec<Line>, gutter: f32) -> Band {
    let (left, right): (Vec<_>, Vec<_>) = lines.iter().cloned().map(|line| line.split(gutter)).unzip();
    let (left, right): (Vec<_>, Vec<_>) =
        (left.into_iter().flatten().collect(), right.into_iter().flatten().collect());
    if is_prose(&left) && is_prose(&right) { Band::Columns(left, right) } else { Band::Across(lines) }
}

/// Whether these are the lines of a column of text: enough of them, and most of them fill it. The cells of a
/// table's column are short, of different lengths, or numbers.
fn is_prose(lines: &[Line]) -> bool {
    let left = lines.iter().map(Line::left).fold(f32::MAX, f32::min);
    let right = lines.iter().map(Line::right).fold(f32::MIN, f32::max);
    let is_full = |line: &&Line| {
        let letters = line.glyphs.iter().filter(|glyph| glyph.text.is_alphabetic()).count();
        line.right() - line.left() > 0.6 * (right - left) && letters >= 15
    };
    lines.len() >= COLUMN_LINES && lines.iter().filter(is_full).count() * 2 >= lines.len()
}

/// Where the white between two columns is: the place in the middle part of a page that the fewest lines
/// cover, if these are few.
fn gutter(lines: &[Line]) -> Option<f32> {
    let left = lines.iter().map(Line::left).fold(f32::MAX, f32::min);
    let right = lines.iter().map(Line::right).fold(f32::MIN, f32::max);
    let width = right - left;
    if lines.len() < COLUMN_LINES || !(width > 0.0 && width < 10_000.0) {
        return None;
    }
    // For each point of the width, how many lines are white there.
    let mut white = vec![0_usize; width as usize + 2];
    for line in lines {
        // A gap counts if it is wide enough, and with it what is left of a line and right of it.
        let mut end = left;
        for (place, glyph) in line.glyphs.iter().enumerate() {
            if place == 0 || glyph.x - end > line.size {
                count(&mut white, end - left, glyph.x - left);
            }
            end = end.max(glyph.end());
        }
        count(&mut white, end - left, width);
    }
    let middle = (width * 0.15) as usize..(width * 0.85) as usize + 1;
    let most = middle.clone().filter_map(|place| white.get(place)).max().copied()?;
    if most * 10 < lines.len() * 6 {
        return None;
    }
    // The widest run of these places.
    let places: Vec<usize> = middle.filter(|place| white.get(*place) == Some(&most)).collect();
    let widest = places.chunk_by(|place, next| place + 1 == *next).max_by_key(|run| run.len())?;
    Some(left + (*widest.first()? + *widest.last()? + 1) as f32 / 2.0)
}

/// Notes that a line is white between two places.
fn count(white: &mut [usize], from: f32, to: f32) {
    let (from, to) = (from.max(0.0).ceil() as usize, to.max(0.0).floor() as usize);
    let to = to.min(white.len());
    for place in white.get_mut(from..to).unwrap_or_default() {
        *place += 1;
    }
}

/// Adds the paragraphs and headings of a column.
fn push_column(html: &mut String, lines: &[Line], usual: f32) {
    let right = lines.iter().map(Line::right).fold(f32::MIN, f32::max);
    let left = lines.iter().map(Line::left).fold(f32::MAX, f32::min);
    let leading = usual_leading(lines);
    for paragraph in lines.chunk_by(|line, next| {
        let distance = line.y - next.y;
        let is_same_size = (line.size - next.size).abs() <= 0.08 * line.size.max(next.size);
        is_same_size
            && distance <= (1.3 * leading).max(1.55 * next.size)
            && !begins_item(next)
            && line.is_bold() == next.is_bold()
            || (line.size > HEADING * usual && is_same_size && distance <= 1.6 * line.size)
    }) {
        let size = paragraph.iter().map(|line| line.size).fold(0.0, f32::max);
        let mut text = String::new();
        let mut breaks = Vec::new();
        for (place, line) in paragraph.iter().enumerate() {
            let line_text = line.text();
            let before = place.checked_sub(1).and_then(|before| paragraph.get(before));
            if let Some(before) = before {
                if is_split(&text, &line_text) {
                    text.pop();
                } else if before.right() < right - 0.2 * (right - left) {
                    // A line that ends early: of code, of verse, of a table.
                    breaks.push(text.len());
                    text.push('\n');
                } else {
                    text.push(' ');
                }
            }
            text.push_str(&line_text);
        }
        push_paragraph(html, &text, size / usual.max(1.0));
    }
}

fn push_paragraph(html: &mut String, text: &str, ratio: f32) {
    let is_heading = ratio >= HEADING && text.len() <= MOST_HEADING && text.chars().any(char::is_alphabetic);
    let (open, close) = match ratio {
        _ if !is_heading => match text.strip_prefix(BULLETS) {
            Some(_) => ("<ul><li>", "</li></ul>"),
            None => ("<p>", "</p>"),
        },
        ratio if ratio >= 1.8 => ("<h1>", "</h1>"),
        ratio if ratio >= 1.4 => ("<h2>", "</h2>"),
        _ => ("<h3>", "</h3>"),
    };
    html.push_str(open);
    let text = if open.starts_with("<ul") { text.trim_start_matches(BULLETS).trim_start() } else { text };
    for (place, line) in text.split('\n').enumerate() {
        if place > 0 {
            html.push_str(if is_heading { " " } else { "<br>" });
        }
        escape(html, line);
    }
    html.push_str(close);
    html.push('\n');
}

const BULLETS: &[char] = &['•', '◦', '▪', '‣', '●', '■', '∙'];

fn begins_item(line: &Line) -> bool {
    line.glyphs.first().is_some_and(|glyph| BULLETS.contains(&glyph.text))
}

/// The distance that lines of this column usually have.
fn usual_leading(lines: &[Line]) -> f32 {
    let mut distances: Vec<f32> = lines.windows(2).map(|pair| pair[0].y - pair[1].y).collect();
    distances.sort_by(f32::total_cmp);
    // Paragraphs are further apart: less than half of the distances are between them.
    distances.get(distances.len() * 2 / 5).copied().unwrap_or_default()
}

/// Words that may follow a hyphen that is not at a line end, as in "pre- and postwar".
const AFTER_SUSPENDED: &[&str] =
    &["and", "or", "to", "und", "oder", "bis", "et", "ou", "y", "o", "e", "en", "och"];

/// Whether a word is hyphenated between these lines.
fn is_split(line: &str, next: &str) -> bool {
    let Some(before) = line.strip_suffix(['-', '\u{ad}', '\u{2010}']) else { return false };
    let word = next.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
    before.ends_with(char::is_lowercase)
        && word.starts_with(char::is_lowercase)
        && !AFTER_SUSPENDED.contains(&word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hebrew_is_read_from_right_to_left_and_numbers_in_it_are_not() {
        let line = |text: &str| {
            let glyphs = text.chars().enumerate().filter(|(_, c)| *c != ' ');
            let glyphs = glyphs.map(|(place, text)| Glyph {
                text,
                x: 5.0 * place as f32,
                y: 0.0,
                width: 5.0,
                size: 10.0,
                is_bold: false,
            });
            Line { y: 0.0, size: 10.0, glyphs: glyphs.collect() }.text()
        };
        // As they are seen, from left to right.
        assert_eq!(line("םולש 2026 תנש"), "שנת 2026 שלום");
        assert_eq!(line("the word םולש is"), "the word שלום is");
        // Marks are no letters.
        assert_eq!(line("\u{64b}\u{64b}\u{64c}"), "\u{64c}\u{64b}\u{64b}");
    }

    #[test]
    fn only_a_hyphen_within_a_word_is_joined() {
        assert!(is_split("the adminis-", "trative role"));
        assert!(!is_split("pre-", "and postwar"));
        assert!(!is_split("Anna-", "Lena"));
        assert!(!is_split("or so -", "and"));
        assert!(!is_split("no hyphen", "here"));
    }
}
