//! The ids that users give, and what they may be.

/// Bytes of a knowledge base's, embedder's or vector database's id, and of a tenant's name at most.
pub const MAX_BYTES: usize = 255;

/// Bytes of an external_id at most: it must fit an index row.
pub const MAX_EXTERNAL_BYTES: usize = 1000;

/// What is wrong with an id that may have `most` bytes.
pub fn problem(id: &str, most: usize) -> Option<String> {
    if id.trim().is_empty() {
        return Some("must not be empty".into());
    }
    (id.len() > most).then(|| format!("it has {} bytes, at most {most} are taken", id.len()))
}

/// What is wrong with a tenant's name, which may be empty.
pub fn tenant_problem(tenant: &str) -> Option<String> {
    if tenant.chars().any(char::is_control) {
        return Some("it holds control characters".into());
    }
    (!tenant.is_empty()).then(|| problem(tenant, MAX_BYTES)).flatten()
}

#[cfg(test)]
mod tests {
    use super::{problem, tenant_problem};

    #[test]
    fn an_id_is_neither_empty_nor_longer_than_its_bound() {
        assert_eq!(problem("é", 2), None);
        assert!(problem("", 2).is_some_and(|p| p.contains("empty")));
        assert!(problem(" \t", 2).is_some_and(|p| p.contains("empty")));
        assert_eq!(problem("éa", 2).as_deref(), Some("it has 3 bytes, at most 2 are taken"));
    }

    #[test]
    fn a_tenant_may_be_unset_but_not_long_blank_or_of_control_characters() {
        for tenant in ["", "a", "Ärzte & Co"] {
            assert_eq!(tenant_problem(tenant), None, "{tenant}");
        }
        assert_eq!(tenant_problem(&"t".repeat(255)), None);
        for tenant in [" ", "a\nb", "a\u{7f}", &"t".repeat(256)] {
            assert!(tenant_problem(tenant).is_some(), "{tenant:?}");
        }
    }
}
