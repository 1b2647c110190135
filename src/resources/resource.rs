//! Which resource a call means.

use kb_types::ServiceKind;
use kb_types::error::ObjectKind;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resource<'a> {
    Service(ServiceKind),
    VectorDb,
    KnowledgeBase,
    /// Of this knowledge base.
    Source(&'a str),
}

impl Resource<'_> {
    pub fn object_kind(self) -> ObjectKind {
        match self {
            Resource::Service(kind) => kind.into(),
            Resource::VectorDb => ObjectKind::VectorDb,
            Resource::KnowledgeBase => ObjectKind::KnowledgeBase,
            Resource::Source(_) => ObjectKind::Source,
        }
    }
}
