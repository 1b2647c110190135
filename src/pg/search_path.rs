//! The search_path of kb's own statements, and the other settings that decide how their text is read.

use super::setting::with;
use pgrx::pg_sys;
use std::ffi::CStr;

/// What kb's own statements are read under: nothing that others made is found by an unqualified name, and text means
/// what it says.
pub(super) const PINNED_PATH: &CStr = c"pg_catalog, pg_temp";

/// Runs `work`, which runs statements of kb, whatever the session has set: under the search_path pg_catalog, pg_temp,
/// and with the settings that decide how SQL text is read at their defaults. Without JIT: a statement of kb takes
/// milliseconds, and its estimated cost (without statistics, say) can ask for a second of compiling. Free where it is so
/// already.
pub(super) fn pinned<T>(work: impl FnOnce() -> T) -> T {
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
