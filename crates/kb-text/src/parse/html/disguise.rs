//! Private-use characters that replace others while a document is converted to Markdown (see escape.rs).

/// Documents do not contain these private-use characters; see [`disguise`].
const FIRST: u32 = 0x10fa00;
/// The characters that are disguised, by their distance from FIRST. The last one is a no-break space, which
/// becomes a space.
const DISGUISED: [char; 17] =
    ['_', '*', '[', ']', '`', '\\', '.', '<', '>', '&', '=', '~', '-', '+', '#', '|', '\u{a0}'];
pub const NO_BREAK_SPACE: char = '\u{10fa10}';
/// Marks where headings of a level and deeper ones end. Level 1 is the character after this one.
const SECTION_END: u32 = 0x10fa20;
const LAST: u32 = 0x10fa2f;
/// Ends a cell until its row is made. The second one ends a cell that contains blocks.
pub const CELL_END: char = '\u{10fa28}';
pub const BLOCK_CELL_END: char = '\u{10fa29}';

/// The character that represents a character of the text during conversion.
pub fn disguise(c: char) -> char {
    if (FIRST..=LAST).contains(&u32::from(c)) {
        return char::REPLACEMENT_CHARACTER;
    }
    let is_special = c.is_ascii_punctuation() || c == '\u{a0}';
    let index = is_special.then(|| DISGUISED.iter().position(|special| *special == c)).flatten();
    match index.and_then(|index| char::from_u32(FIRST + index as u32)) {
        Some(disguised) => disguised,
        // No browser ends a line at `&#13;`.
        None if c == '\r' => ' ',
        None => c,
    }
}

/// Undoes the disguise of a character.
pub fn plain(c: char) -> char {
    let index = u32::from(c).checked_sub(FIRST).map(|index| index as usize);
    match index.and_then(|index| DISGUISED.get(index)) {
        Some('\u{a0}') => ' ',
        Some(special) => *special,
        None => c,
    }
}

/// The mark of the end of a heading's section.
pub fn section_end(level: usize) -> char {
    char::from_u32(SECTION_END + level.min(6) as u32).unwrap_or(' ')
}

/// The level of the mark of the end of a section.
pub fn section_end_level(c: char) -> Option<usize> {
    let level = u32::from(c).checked_sub(SECTION_END)? as usize;
    (1..=6).contains(&level).then_some(level)
}

/// White space, disguised or not.
pub fn is_space(c: char) -> bool {
    c.is_whitespace() || c == NO_BREAK_SPACE
}
