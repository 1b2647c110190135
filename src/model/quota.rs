//! What a tenant may have.

/// Each None: as much as it likes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Quota {
    /// Of all its documents, as they were put.
    pub bytes: Option<i64>,
    /// In one knowledge base.
    pub documents: Option<i64>,
    /// Of one document.
    pub document_bytes: Option<i64>,
    pub knowledge_bases: Option<i64>,
    /// That are sent to remote endpoints, in UTC.
    pub tokens_per_day: Option<i64>,
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
    /// Whether documents have to be counted for it.
    pub fn bounds_documents(&self) -> bool {
        self.bytes.is_some() || self.documents.is_some()
    }

    /// What stands in the way of more. What makes nothing larger is never refused, though the quota was lowered since.
    pub fn shortage(&self, used: Volume, more: Volume) -> Option<Shortage> {
        let counts = [
            ("bytes of documents", self.bytes, used.bytes, more.bytes),
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
