//! A filter: a tree of conditions on the metadata and the other fields of a document. The store compiles it
//! to SQL.

use super::json::Json;
use super::memory::MemoryCondition;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filter {
    /// All of these hold. Without any, it always holds.
    All(Vec<Filter>),
    /// One of these holds. Without any, it never holds.
    Any(Vec<Filter>),
    Not(Box<Filter>),
    Is(Key, Test),
    /// It is an entry of a memory of which this holds. Nobody writes this; a recall adds it.
    Remembered(MemoryCondition),
}

/// The part of a document that a condition tests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// A key of its metadata.
    Metadata(String),
    Field(Field),
}

/// A column of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    ExternalId,
    Uri,
    Title,
    ContentType,
    CreatedAt,
}

/// A condition on a value. No condition holds for a value that is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Test {
    /// The value equals this one as JSON, so that an object or array contains nothing else. For metadata, a
    /// text that is a timestamp is [`Test::At`] instead.
    Equals(Json),
    OneOf(Vec<Json>),
    /// The value is one of these times, in microseconds since 1970.
    At(Vec<i64>),
    Compares(Comparison, Bound),
    /// The value is an array that contains all of these values.
    Contains(Vec<Json>),
    Exists,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Greater,
    GreaterOrEqual,
    Less,
    LessOrEqual,
}

/// A bound that a value is compared with. Only values of the same kind compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bound {
    /// As it was written.
    Number(Json),
    /// Compared by code points.
    Text(String),
    /// Microseconds since 1970.
    Time(i64),
}

/// The kind of values that an index on a key of metadata holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IndexType {
    Text,
    Number,
    Timestamp,
}

crate::named!(IndexType { Text => "text", Number => "number", Timestamp => "timestamp" });

impl IndexType {
    /// The type of the index that serves comparisons with this bound.
    pub fn of(bound: &Bound) -> IndexType {
        match bound {
            Bound::Number(_) => IndexType::Number,
            Bound::Text(_) => IndexType::Text,
            Bound::Time(_) => IndexType::Timestamp,
        }
    }
}

impl Filter {
    /// Whether every document passes.
    pub fn is_always(&self) -> bool {
        match self {
            Filter::All(parts) => parts.iter().all(Filter::is_always),
            Filter::Any(parts) => parts.iter().any(Filter::is_always),
            Filter::Not(part) => part.is_never(),
            Filter::Is(..) | Filter::Remembered(_) => false,
        }
    }

    /// Whether no document passes.
    fn is_never(&self) -> bool {
        match self {
            Filter::All(parts) => parts.iter().any(Filter::is_never),
            Filter::Any(parts) => parts.iter().all(Filter::is_never),
            Filter::Not(part) => part.is_always(),
            Filter::Is(_, Test::OneOf(values)) => values.is_empty(),
            Filter::Is(_, Test::At(times)) => times.is_empty(),
            Filter::Is(..) | Filter::Remembered(_) => false,
        }
    }

    /// Whether it compares values of metadata by order, or as times.
    pub fn has_ranges(&self) -> bool {
        match self {
            Filter::All(parts) | Filter::Any(parts) => parts.iter().any(Filter::has_ranges),
            Filter::Not(part) => part.has_ranges(),
            Filter::Is(Key::Metadata(_), test) => matches!(test, Test::Compares(..) | Test::At(_)),
            Filter::Is(Key::Field(_), _) | Filter::Remembered(_) => false,
        }
    }

    /// The keys of metadata that it names.
    pub fn metadata_keys(&self) -> Vec<&str> {
        match self {
            Filter::All(parts) | Filter::Any(parts) => parts.iter().flat_map(Filter::metadata_keys).collect(),
            Filter::Not(part) => part.metadata_keys(),
            Filter::Is(Key::Metadata(key), _) => vec![key],
            Filter::Is(Key::Field(_), _) | Filter::Remembered(_) => Vec::new(),
        }
    }
}

impl Field {
    /// As a filter names it.
    pub fn name(self) -> &'static str {
        match self {
            Field::ExternalId => "$external_id",
            Field::Uri => "$uri",
            Field::Title => "$title",
            Field::ContentType => "$content_type",
            Field::CreatedAt => "$created_at",
        }
    }
}
