//! The rules for ids that users choose.

/// The most bytes in the id of a knowledge base, embedder or vector database, and in the name of a tenant.
pub const MAX_BYTES: usize = 255;

/// The most bytes of an external_id, which must fit into an index tuple.
pub const MAX_EXTERNAL_BYTES: usize = 1000;

/// Says what is wrong with an id that may have at most `most` bytes.
pub fn problem(id: &str, most: usize) -> Option<String> {
    if id.trim().is_empty() {
        return Some("must not be empty".into());
    }
    (id.len() > most).then(|| format!("it has {} bytes; at most {most} are allowed", id.len()))
}

/// Says what is wrong with a name that is printed, as in a prompt.
pub fn name_problem(name: &str) -> Option<String> {
    if name.chars().any(char::is_control) {
        return Some("it contains control characters".into());
    }
    problem(name, MAX_BYTES)
}

/// Says what is wrong with the name of a tenant, which may be empty.
pub fn tenant_problem(tenant: &str) -> Option<String> {
    (!tenant.is_empty()).then(|| name_problem(tenant)).flatten()
}

#[cfg(test)]
mod tests {
    use super::{problem, tenant_problem};

    #[test]
    fn an_id_is_neither_empty_nor_longer_than_its_bound() {
        assert_eq!(problem("é", 2), None);
        assert!(problem("", 2).is_some_and(|p| p.contains("empty")));
        assert!(problem(" \t", 2).is_some_and(|p| p.contains("empty")));
        assert_eq!(problem("éa", 2).as_deref(), Some("it has 3 bytes; at most 2 are allowed"));
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
