//! The arguments of a statement whose text is composed: each gets its number when it is added.

use crate::pg::spi::Arg;
use kb_types::Json;

#[derive(Default)]
pub struct Arguments<'a>(Vec<Argument<'a>>);

enum Argument<'a> {
    Given(Arg<'a>),
    Made(Json),
}

impl<'a> Arguments<'a> {
    /// Adds an argument and returns its name in the statement: $1, $2 and so on.
    pub fn add(&mut self, argument: Arg<'a>) -> String {
        self.push(Argument::Given(argument))
    }

    /// Does the same for a value that was made for this statement.
    pub fn add_json(&mut self, json: Json) -> String {
        self.push(Argument::Made(json))
    }

    fn push(&mut self, argument: Argument<'a>) -> String {
        self.0.push(argument);
        format!("${}", self.0.len())
    }

    /// All arguments, in the order of their numbers.
    pub fn all(&self) -> Vec<Arg<'_>> {
        self.0.iter().map(Argument::arg).collect()
    }
}

impl Argument<'_> {
    fn arg(&self) -> Arg<'_> {
        match self {
            Argument::Given(arg) => *arg,
            Argument::Made(json) => Arg::JsonText(Some(json)),
        }
    }
}
