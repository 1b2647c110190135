//! Where something stands in a file, and what is wrong there.

use std::fmt;

/// A place in a file. Lines and columns are counted from 1, columns in characters.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

/// What is wrong at a place.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    pub place: Place,
    pub problem: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { line, column } = self.place;
        write!(f, "line {line}, column {column}: {}", self.problem)
    }
}

impl Place {
    pub fn problem(self, problem: impl Into<String>) -> Problem {
        Problem { place: self, problem: problem.into() }
    }
}
