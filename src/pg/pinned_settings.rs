//! Settings that kb pins: search_path and what else decides how its statements are read, what is made as the owner, and
//! what a background process does.

use super::setting::{set_for_process, with};
use pgrx::pg_sys;
use std::ffi::CStr;

/// What kb's own statements are read under: nothing that others made is found by an unqualified name, and text means
/// what it says.
const PINNED_PATH: &CStr = c"pg_catalog, pg_temp";

/// Runs `work`, which runs statements of kb, whatever the session has set: under the search_path pg_catalog, pg_temp,
/// and with the settings that decide how SQL text is read at their defaults. Without JIT: a statement of kb takes
/// milliseconds, and its estimated cost (without statistics, say) can ask for a second of compiling. Free where it is so
/// already.
pub fn pinned<T>(work: impl FnOnce() -> T) -> T {
    let mut changes: [(&CStr, &CStr); 5] = [(c"", c""); 5];
    let mut count = 0;
    let mut change = |wanted: bool, name, value| {
        if wanted {
            changes[count] = (name, value);
            count += 1;
        }
    };
    // SAFETY: plain settings of this process; the path is a string that GUC owns and nothing changes meanwhile.
    unsafe {
        let path = pg_sys::namespace_search_path;
        change(path.is_null() || CStr::from_ptr(path) != PINNED_PATH, c"search_path", PINNED_PATH);
        change(!pg_sys::standard_conforming_strings, c"standard_conforming_strings", c"on");
        change(pg_sys::Transform_null_equals, c"transform_null_equals", c"off");
        change(pg_sys::quote_all_identifiers, c"quote_all_identifiers", c"off");
        change(pg_sys::jit_enabled, c"jit", c"off");
    }
    if count == 0 { work() } else { with(&changes[..count], work) }
}

/// Settings of a session that would affect what is made or deleted as the owner.
pub const AS_OWNER: [(&CStr, &CStr); 6] = [
    (c"search_path", PINNED_PATH),
    // The database's own.
    (c"default_tablespace", c""),
    (c"default_table_access_method", c"heap"),
    (c"default_toast_compression", c"pglz"),
    // A superuser in mode replica would delete documents and leave their chunks.
    (c"session_replication_role", c"origin"),
    (c"row_security", c"on"),
];

/// What a database's or a role's own settings would change in what a background process does.
const AS_PROCESS: [(&CStr, &CStr); 11] = [
    // The role that the process connected as.
    (c"role", c"none"),
    (c"standard_conforming_strings", c"on"),
    (c"transform_null_equals", c"off"),
    (c"quote_all_identifiers", c"off"),
    (c"jit", c"off"),
    (c"default_transaction_read_only", c"off"),
    (c"default_transaction_isolation", c"read committed"),
    (c"default_transaction_deferrable", c"off"),
    (c"statement_timeout", c"0"),
    (c"lock_timeout", c"0"),
    (c"idle_in_transaction_session_timeout", c"0"),
];

/// Pins all settings that would affect what a background process makes, for the rest of its life.
pub fn pin_for_process() {
    for (name, value) in AS_OWNER.iter().chain(&AS_PROCESS) {
        set_for_process(name, value);
    }
    #[cfg(any(feature = "pg17", feature = "pg18"))]
    set_for_process(c"transaction_timeout", c"0");
    // Texts go as they are.
    // SAFETY: the name is a constant.
    set_for_process(c"client_encoding", unsafe { CStr::from_ptr(pg_sys::GetDatabaseEncodingName()) });
}
