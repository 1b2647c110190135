//! What a tenant may have.

/// Each None: as much as it likes; of things that are counted by [`Thing`] as many as the settings say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quota {
    /// Of all that it stores: documents as they were put, with title, uri and metadata, and what else it gives.
    pub bytes: Option<i64>,
    /// In one knowledge base.
    pub documents: Option<i64>,
    /// Of one document.
    pub document_bytes: Option<i64>,
    pub knowledge_bases: Option<i64>,
    /// That are sent to remote endpoints, in UTC.
    pub tokens_per_day: Option<i64>,
    pub attached_tables: Option<i64>,
    pub metadata_indexes: Option<i64>,
}

/// What the server, or all of its users together, pay for each of, so that no tenant may have any number unless it is told so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Thing {
    KnowledgeBases,
    AttachedTables,
    /// Keys of metadata of a type, each once for all knowledge bases.
    MetadataIndexes,
}

impl Thing {
    /// As in kb.quotas and kb.quota_status.
    pub fn parse(name: &str) -> Option<Thing> {
        match name {
            "knowledge_bases" => Some(Thing::KnowledgeBases),
            "attached_tables" => Some(Thing::AttachedTables),
            "metadata_indexes" => Some(Thing::MetadataIndexes),
            _ => None,
        }
    }

    /// As in "N attached tables".
    pub fn name(self) -> &'static str {
        match self {
            Thing::KnowledgeBases => "knowledge bases",
            Thing::AttachedTables => "attached tables",
            Thing::MetadataIndexes => "indexes on keys of metadata",
        }
    }
}

/// What a tenant has, as far as a quota bounds it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Volume {
    /// In one knowledge base.
    pub documents: i64,
    /// In all.
    pub bytes: i64,
}

/// What of a quota does not suffice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// As in "N bytes".
    pub what: &'static str,
    pub allowed: i64,
    pub used: i64,
    /// In addition to what is used.
    pub needed: i64,
}

impl Quota {
    /// What it says of things of a kind.
    pub fn of(&self, thing: Thing) -> Option<i64> {
        match thing {
            Thing::KnowledgeBases => self.knowledge_bases,
            Thing::AttachedTables => self.attached_tables,
            Thing::MetadataIndexes => self.metadata_indexes,
        }
    }

    /// Whether documents have to be counted for it.
    pub fn bounds_documents(&self) -> bool {
        self.bytes.is_some() || self.documents.is_some()
    }

    /// What stands in the way of more. What makes nothing larger is never refused, though the quota was lowered since.
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
    fn what_is_within_each_limit_is_taken_and_one_more_is_not() {
        let quota = Quota { bytes: Some(100), documents: Some(3), ..Quota::default() };
        assert_eq!(quota.shortage(volume(2, 90), volume(1, 10)), None);
        let shortage = quota.shortage(volume(2, 90), volume(1, 11)).unwrap();
        assert_eq!((shortage.allowed, shortage.used, shortage.needed), (100, 90, 11));
        let shortage = quota.shortage(volume(3, 0), volume(1, 0)).unwrap();
        assert_eq!(shortage.what, "documents in one knowledge base");
        assert_eq!(Quota::default().shortage(volume(i64::MAX, i64::MAX), volume(1, 1)), None);
    }

    #[test]
    fn who_has_too_much_may_make_it_less() {
        let quota = Quota { bytes: Some(10), documents: Some(1), ..Quota::default() };
        assert_eq!(quota.shortage(volume(5, 50), volume(0, -5)), None);
        assert_eq!(quota.shortage(volume(5, 50), volume(0, 0)), None);
        assert!(quota.shortage(volume(5, 50), volume(0, 1)).is_some());
    }
}
