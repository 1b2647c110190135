//! Plain types shared by every layer: what things are, not what is done with them.

mod bounds;
pub mod chunking;
pub mod embedder;
pub mod fields;
pub mod hit;
pub mod json;
pub mod knowledge_base;
pub mod remote;
pub mod vector_db;

pub use bounds::{Bounds, Limits};
pub use chunking::{Chunk, Chunking, Span, Strategy, Unit};
pub use embedder::{Embedder, EmbedderConfig, Kind, Pooling};
pub use hit::Hit;
pub use json::Json;
pub use knowledge_base::{Preprocess, Retrieval};
pub use vector_db::{Metric, VectorDbConfig, VectorDbType};
