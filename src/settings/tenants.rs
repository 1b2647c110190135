//! Settings for the shares and limits that a tenant has by default.

use kb_types::quota::Thing;
use pgrx::{GucContext, GucFlags, GucRegistry, GucSetting};

static KNOWLEDGE_BASES: GucSetting<i32> = GucSetting::<i32>::new(200);
static ATTACHED_TABLES: GucSetting<i32> = GucSetting::<i32>::new(100);
static METADATA_INDEXES: GucSetting<i32> = GucSetting::<i32>::new(8);
static MEMORY_ENTRIES: GucSetting<i32> = GucSetting::<i32>::new(10_000);

/// Defines these settings. Only a superuser may set them, because one tenant's share is taken from the
/// others.
pub fn define() {
    for (name, what, setting) in [
        (
            c"kb.tenant_knowledge_bases",
            c"Sets the default maximum number of knowledge bases of a tenant.",
            &KNOWLEDGE_BASES,
        ),
        (
            c"kb.tenant_attached_tables",
            c"Sets the default maximum number of attached tables of a tenant.",
            &ATTACHED_TABLES,
        ),
        (
            c"kb.tenant_metadata_indexes",
            c"Sets the default maximum number of indexed metadata keys of a tenant.",
            &METADATA_INDEXES,
        ),
        (
            c"kb.tenant_memory_entries",
            c"Sets the default maximum number of entries in all memories of a tenant.",
            &MEMORY_ENTRIES,
        ),
    ] {
        GucRegistry::define_int_guc(
            name,
            what,
            c"-1 means no limit. kb.set_quota sets the limit of a single tenant. Tenants '' and 'shared' have no limit by default.",
            setting,
            -1,
            i32::MAX,
            GucContext::Suset,
            GucFlags::default(),
        );
    }
}

/// The number of things of a kind that a tenant may have if its quota does not say; None means no limit.
pub fn quota(thing: Thing) -> Option<i64> {
    let setting = match thing {
        Thing::KnowledgeBases => &KNOWLEDGE_BASES,
        Thing::AttachedTables => &ATTACHED_TABLES,
        Thing::MetadataIndexes => &METADATA_INDEXES,
        Thing::MemoryEntries => &MEMORY_ENTRIES,
    };
    Some(i64::from(setting.get())).filter(|most| *most >= 0)
}
