//! Marks in an extracted text (headings, pages, cues, sheets), and the locator that a chunk gets from them.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// What begins at a place in a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mark {
    /// A heading, which ends those of its level and of deeper levels (larger numbers). Its title may be
    /// empty.
    Heading { level: usize, title: String },
    /// A definition in source code, such as a function or a class: it is closed like a heading. `level` says
    /// within how many others it is, itself included. What follows its end has an empty name.
    Definition { level: usize, name: String },
    /// A page, counted from 1.
    Page(u32),
    /// A slide of a presentation, counted from 1.
    Slide(u32),
    /// A chapter of a book, by its title.
    Chapter(String),
    /// Speech from one time of a recording to another, in milliseconds, and who speaks where that is known.
    Cue { start_ms: u64, end_ms: u64, speaker: Option<String> },
    /// A sheet of a workbook, by its name.
    Sheet(String),
}

/// A mark and the byte of the text where it is. Marks are in the order of their offsets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marked {
    pub offset: usize,
    pub mark: Mark,
}

/// Where a chunk is in its document, in terms that help a reader to find it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Locator {
    /// Titles of the headings above the chunk's first character, or names of the definitions around it,
    /// outermost first.
    pub headings: Vec<String>,
    /// The page, slide, chapter and sheet in which it begins.
    pub page: Option<u32>,
    pub slide: Option<u32>,
    pub chapter: Option<String>,
    pub sheet: Option<String>,
    /// The times at which it begins and ends, in milliseconds.
    pub cue: Option<(u64, u64)>,
    /// Who speaks at its beginning.
    pub speaker: Option<String>,
}

impl Locator {
    /// The stored form, which has only the fields that are set. Times are in seconds.
    pub fn to_json(&self) -> Value {
        let seconds = |ms: u64| ms as f64 / 1000.0;
        let mut locator = serde_json::Map::new();
        if !self.headings.is_empty() {
            locator.insert("headings".into(), json!(self.headings));
        }
        if let Some(page) = self.page {
            locator.insert("page".into(), json!(page));
        }
        if let Some(slide) = self.slide {
            locator.insert("slide".into(), json!(slide));
        }
        if let Some(chapter) = &self.chapter {
            locator.insert("chapter".into(), json!(chapter));
        }
        if let Some((start, end)) = self.cue {
            locator.insert("cue".into(), json!({ "start": seconds(start), "end": seconds(end) }));
        }
        if let Some(speaker) = &self.speaker {
            locator.insert("speaker".into(), json!(speaker));
        }
        if let Some(sheet) = &self.sheet {
            locator.insert("sheet".into(), json!(sheet));
        }
        Value::Object(locator)
    }

    /// How many bytes its texts have.
    pub fn size(&self) -> usize {
        self.headings
            .iter()
            .chain(&self.sheet)
            .chain(&self.chapter)
            .chain(&self.speaker)
            .map(String::len)
            .sum()
    }
}

/// Walks through a text from mark to mark.
#[derive(Debug)]
pub struct Walk<'a> {
    rest: &'a [Marked],
    open: Vec<(usize, &'a str)>,
    page: Option<u32>,
    slide: Option<u32>,
    chapter: Option<&'a str>,
    sheet: Option<&'a str>,
    cue: Option<(u64, u64)>,
    speaker: Option<&'a str>,
}

impl<'a> Walk<'a> {
    pub fn new(marks: &'a [Marked]) -> Self {
        Walk {
            rest: marks,
            open: Vec::new(),
            page: None,
            slide: None,
            chapter: None,
            sheet: None,
            cue: None,
            speaker: None,
        }
    }

    /// The locator of the text from byte `start` (a mark at that byte included) to byte `end`. Starts must
    /// not decrease from call to call.
    pub fn locate(&mut self, start: usize, end: usize) -> Locator {
        while let Some((next, rest)) = self.rest.split_first() {
            if next.offset > start {
                break;
            }
            self.pass(&next.mark);
            self.rest = rest;
        }
        let within = self.rest.iter().take_while(|marked| marked.offset < end);
        let cues = within.filter_map(|marked| match marked.mark {
            Mark::Cue { start_ms, end_ms, .. } => Some((start_ms, end_ms)),
            _ => None,
        });
        Locator {
            headings: self
                .open
                .iter()
                .map(|(_, title)| *title)
                .filter(|t| !t.is_empty())
                .map(Into::into)
                .collect(),
            page: self.page,
            slide: self.slide,
            chapter: self.chapter.map(Into::into),
            sheet: self.sheet.map(Into::into),
            speaker: self.speaker.map(Into::into),
            cue: self.cue.into_iter().chain(cues).reduce(|first, last| (first.0, last.1)),
        }
    }

    fn pass(&mut self, mark: &'a Mark) {
        match mark {
            Mark::Heading { level, title } | Mark::Definition { level, name: title } => {
                self.open.retain(|(above, _)| above < level);
                self.open.push((*level, title));
            }
            Mark::Page(page) => self.page = Some(*page),
            Mark::Slide(slide) => self.slide = Some(*slide),
            Mark::Chapter(title) => self.chapter = Some(title),
            Mark::Cue { start_ms, end_ms, speaker } => {
                self.cue = Some((*start_ms, *end_ms));
                self.speaker = speaker.as_deref();
            }
            Mark::Sheet(name) => self.sheet = Some(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marks(all: Vec<(usize, Mark)>) -> Vec<Marked> {
        all.into_iter().map(|(offset, mark)| Marked { offset, mark }).collect()
    }

    fn heading(level: usize, title: &str) -> Mark {
        Mark::Heading { level, title: title.into() }
    }

    #[test]
    fn a_heading_closes_those_of_its_level_and_below() {
        let marks = marks(vec![
            (0, heading(1, "A")),
            (10, heading(2, "B")),
            (20, heading(3, "C")),
            (30, heading(2, "")),
            (40, heading(1, "D")),
        ]);
        let mut walk = Walk::new(&marks);
        let mut headings = |at| walk.locate(at, at + 1).headings;
        assert_eq!(headings(5), ["A"]);
        assert_eq!(headings(20), ["A", "B", "C"]);
        assert_eq!(headings(35), ["A"]);
        assert_eq!(headings(99), ["D"]);
    }

    #[test]
    fn a_chunk_is_on_the_page_and_sheet_where_it_begins() {
        let marks = marks(vec![
            (0, Mark::Page(1)),
            (10, Mark::Page(2)),
            (10, Mark::Sheet("Prices".into())),
            (20, Mark::Page(3)),
        ]);
        let mut walk = Walk::new(&marks);
        assert_eq!(walk.locate(0, 25).to_json(), json!({"page": 1}));
        assert_eq!(walk.locate(12, 25).to_json(), json!({"page": 2, "sheet": "Prices"}));
        assert_eq!(Locator::default().to_json(), json!({}));
    }

    #[test]
    fn a_chunk_lasts_from_its_first_cue_to_its_last() {
        let cue = |start_ms, end_ms| Mark::Cue { start_ms, end_ms, speaker: Some(format!("S{start_ms}")) };
        let marks = marks(vec![(0, cue(0, 1500)), (10, cue(1500, 4000)), (20, cue(5000, 6000))]);
        let mut walk = Walk::new(&marks);
        assert_eq!(walk.locate(0, 10).cue, Some((0, 1500)));
        assert_eq!(walk.locate(5, 20).to_json(), json!({"cue": {"start": 0.0, "end": 4.0}, "speaker": "S0"}));
        assert_eq!(walk.locate(25, 30).cue, Some((5000, 6000)));
    }
}
