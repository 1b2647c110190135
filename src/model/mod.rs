//! Plain types shared by every layer: what things are, not what is done with them.

pub mod bisect;
mod bounds;
pub mod candidate;
pub mod chunking;
pub mod embedder;
pub mod fields;
pub mod filter;
mod filter_syntax;
pub mod hit;
pub mod id;
pub mod json;
pub mod json_fields;
pub mod json_path;
pub mod knowledge_base;
pub mod marks;
pub mod quota;
pub mod remote;
pub mod row_key;
pub mod row_source;
pub mod states;
pub mod template;
pub mod tenancy;
pub mod timestamp;
pub mod vector_db;

pub use bounds::{Bounds, Limits};
pub use candidate::Candidate;
pub use chunking::{Chunk, Chunking, Span, Strategy, Unit};
pub use embedder::{Embedder, EmbedderConfig, Kind, Pooling};
pub use filter::Filter;
pub use hit::Hit;
pub use json::Json;
pub use knowledge_base::{Preprocess, Retrieval};
pub use marks::{Locator, Mark, Marked};
pub use row_source::{Adopt, RowContent, RowSource};
pub use vector_db::{Metric, VectorDbConfig, VectorDbType};
