//! The settings that kb pins: search_path and others that decide how its statements are read, what is created
//! as the owner, and what a background process does.

use super::setting::{set_for_process, with};
use pgrx::pg_sys;
use std::ffi::CStr;

/// The search_path of kb's own statements. An unqualified name finds no object that other users have made,
/// and the text of a statement means what it says.
const PINNED_PATH: &CStr = c"pg_catalog, pg_temp";

/// Runs `work`, which runs statements of kb, under the search_path pg_catalog, pg_temp and with default
/// values of the settings that decide how SQL text is read, whatever the session has set. JIT is off: a
/// statement of kb takes milliseconds, but its estimated cost (without statistics, for example) can trigger a
/// second of compilation. The call costs nothing if the settings have these values already.
pub fn pinned<T>(work: impl FnOnce() -> T) -> T {
    let mut changes: [(&CStr, &CStr); 5] = [(c"", c""); 5];
    let mut count = 0;
    let mut change = |wanted: bool, name, value| {
        if wanted {
            changes[count] = (name, value);
            count += 1;
        }
    };
    // SAFETY: plain settings of this process. GUC owns the string of the path, and nothing changes it
    // meanwhile.
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

/// Settings of a session that would affect what is created or deleted as the owner.
pub const AS_OWNER: [(&CStr, &CStr); 6] = [
    (c"search_path", PINNED_PATH),
    // The default of the database.
    (c"default_tablespace", c""),
    (c"default_table_access_method", c"heap"),
    (c"default_toast_compression", c"pglz"),
    // Without this, a superuser in mode replica would delete documents and leave their chunks behind.
    (c"session_replication_role", c"origin"),
    (c"row_security", c"on"),
];

/// Settings by which a database or a role could change what a background process does.
const AS_PROCESS: [(&CStr, &CStr); 11] = [
    // The role as which the process connected.
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

/// Pins all settings that would affect what a background process creates, for the rest of its life.
pub fn pin_for_process() {
    for (name, value) in AS_OWNER.iter().chain(&AS_PROCESS) {
        set_for_process(name, value);
    }
    #[cfg(any(feature = "pg17", feature = "pg18"))]
    set_for_process(c"transaction_timeout", c"0");
    // Texts are sent as they are. SAFETY: the name is a constant.
    set_for_process(c"client_encoding", unsafe { CStr::from_ptr(pg_sys::GetDatabaseEncodingName()) });
}
