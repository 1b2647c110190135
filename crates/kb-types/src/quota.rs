//! Quotas: how much a tenant may have.

/// A limit that is None does not apply. For things that [`Thing`] counts, the settings have a default limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quota {
    /// The bytes of all that the tenant stores: documents as they were put, with title, uri and metadata, and
    /// what else it provides.
    pub bytes: Option<i64>,
    /// Counted in one knowledge base.
    pub documents: Option<i64>,
    /// The most bytes of one document.
    pub document_bytes: Option<i64>,
    pub knowledge_bases: Option<i64>,
    /// The most tokens sent to remote endpoints in a day (UTC).
    pub tokens_per_day: Option<i64>,
    pub attached_tables: Option<i64>,
    pub metadata_indexes: Option<i64>,
    /// The most entries of all memories.
    pub memory_entries: Option<i64>,
}

/// Things that cost the server, or all its users together, so that their number is limited for every tenant
/// unless a quota says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thing {
    KnowledgeBases,
    AttachedTables,
    /// Indexed keys of metadata with their types, counted once for all knowledge bases.
    MetadataIndexes,
    /// Entries of memories, also those that are archived, expired or superseded.
    MemoryEntries,
}

impl Thing {
    /// Reads the name that kb.quotas and kb.quota_status use.
    pub fn parse(name: &str) -> Option<Thing> {
        match name {
            "knowledge_bases" => Some(Thing::KnowledgeBases),
            "attached_tables" => Some(Thing::AttachedTables),
            "metadata_indexes" => Some(Thing::MetadataIndexes),
            "memory_entries" => Some(Thing::MemoryEntries),
            _ => None,
        }
    }

    /// As in "N attached tables".
    pub fn name(self) -> &'static str {
        match self {
            Thing::KnowledgeBases => "knowledge bases",
            Thing::AttachedTables => "attached tables",
            Thing::MetadataIndexes => "indexes on keys of metadata",
            Thing::MemoryEntries => "entries of memories",
        }
    }
}

/// What a tenant has of the things that a quota limits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Volume {
    /// Counted in one knowledge base.
    pub documents: i64,
    /// Counted over all knowledge bases.
    pub bytes: i64,
}

/// The limit of a quota that would be exceeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// As in "N bytes".
    pub what: &'static str,
    pub allowed: i64,
    pub used: i64,
    /// How much would be needed in addition to what is used.
    pub needed: i64,
}

impl Quota {
    /// The limit for things of one kind.
    pub fn of(&self, thing: Thing) -> Option<i64> {
        match thing {
            Thing::KnowledgeBases => self.knowledge_bases,
            Thing::AttachedTables => self.attached_tables,
            Thing::MetadataIndexes => self.metadata_indexes,
            Thing::MemoryEntries => self.memory_entries,
        }
    }

    /// Whether checking it requires counting documents.
    pub fn bounds_documents(&self) -> bool {
        self.bytes.is_some() || self.documents.is_some()
    }

    /// The limit that forbids adding `more`. A change that makes nothing larger is never refused, even where
    /// the quota has been lowered since.
    pub fn shortage(&self, used: Volume, more: Volume) -> Option<Shortage> {
        let counts = [
            ("bytes", self.bytes, used.bytes, more.bytes),
            ("documents in one knowledge base", self.documents, used.documents, more.documents),
        ];
        counts.into_iter().find_map(|(what, allowed, used, needed)| {
            let allowed = allowed?;
            let is_over = needed > 0 && used.saturating_add(needed) > allowed;
            is_over.then_some(Shortage { what, allowed, used, needed })
        })
    }
}

impl Volume {
    pub fn plus(self, more: Volume) -> Volume {
        Volume {
            documents: self.documents.saturating_add(more.documents),
            bytes: self.bytes.saturating_add(more.bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(documents: i64, bytes: i64) -> Volume {
        Volume { documents, bytes }
    }

    #[test]
    fn a_limit_is_reached_exactly_and_not_exceeded() {
        let quota = Quota { bytes: Some(100), documents: Some(3), ..Quota::default() };
        assert_eq!(quota.shortage(volume(2, 90), volume(1, 10)), None);
        let shortage = quota.shortage(volume(2, 90), volume(1, 11)).unwrap();
        assert_eq!((shortage.allowed, shortage.used, shortage.needed), (100, 90, 11));
        let shortage = quota.shortage(volume(3, 0), volume(1, 0)).unwrap();
        assert_eq!(shortage.what, "documents in one knowledge base");
        assert_eq!(Quota::default().shortage(volume(i64::MAX, i64::MAX), volume(1, 1)), None);
    }

    #[test]
    fn a_tenant_over_its_quota_may_reduce_what_it_has() {
        let quota = Quota { bytes: Some(10), documents: Some(1), ..Quota::default() };
        assert_eq!(quota.shortage(volume(5, 50), volume(0, -5)), None);
        assert_eq!(quota.shortage(volume(5, 50), volume(0, 0)), None);
        assert!(quota.shortage(volume(5, 50), volume(0, 1)).is_some());
    }
}
