//! Settings of PostgreSQL and of other modules: reads them, and sets them for a piece of work or for a
//! process.

use pgrx::pg_sys;
use std::cell::Cell;
use std::ffi::{CStr, CString, c_int};
use std::sync::OnceLock;

/// Sets a setting at the current nesting level, with the rights of the extension.
pub fn set(name: &CStr, value: &CStr) {
    // SAFETY: both strings outlive the call, and GUC copies them. An invalid value raises an ERROR.
    unsafe {
        pg_sys::set_config_option(
            name.as_ptr(),
            value.as_ptr(),
            pg_sys::GucContext::PGC_SUSET,
            pg_sys::GucSource::PGC_S_SESSION,
            pg_sys::GucAction::GUC_ACTION_SAVE,
            true,
            0,
            false,
        );
    }
}

/// Runs `work` with settings that are reset when it ends or fails.
pub fn with<T>(settings: &[(&CStr, &CStr)], work: impl FnOnce() -> T) -> T {
    at_level(settings, true, work)
}

/// Does the same, and also resets whatever `work` sets: code of users must not change the settings of a
/// process.
pub fn with_none_kept<T>(settings: &[(&CStr, &CStr)], work: impl FnOnce() -> T) -> T {
    at_level(settings, false, work)
}

fn at_level<T>(settings: &[(&CStr, &CStr)], keeps_others: bool, work: impl FnOnce() -> T) -> T {
    // The level is closed on return. After an ERROR, the abort of the transaction closes it.
    let level = open_level(settings);
    let result = work();
    close_level(keeps_others, level);
    result
}

#[inline(never)]
fn open_level(settings: &[(&CStr, &CStr)]) -> c_int {
    // SAFETY: this only increments a counter.
    let level = unsafe { pg_sys::NewGUCNestLevel() };
    for (name, value) in settings {
        set(name, value);
    }
    level
}

#[inline(never)]
fn close_level(keeps_others: bool, level: c_int) {
    // SAFETY: `open_level` has returned this level.
    unsafe { pg_sys::AtEOXact_GUC(keeps_others, level) };
}

/// Sets a setting for the rest of a background process's life.
pub fn set_for_process(name: &CStr, value: &CStr) {
    // SAFETY: as in `set`.
    unsafe {
        pg_sys::SetConfigOption(
            name.as_ptr(),
            value.as_ptr(),
            pg_sys::GucContext::PGC_SUSET,
            pg_sys::GucSource::PGC_S_SESSION,
        );
    }
}

/// Sets the number of parallel workers that help to build an index, for the rest of the life of a background
/// process. None means the number of the configuration.
pub fn set_parallel_maintenance_workers(workers: Option<i32>) {
    static CONFIGURED: OnceLock<i32> = OnceLock::new();
    // SAFETY: a plain setting of this process.
    let configured = *CONFIGURED.get_or_init(|| unsafe { pg_sys::max_parallel_maintenance_workers });
    let value = CString::new(workers.unwrap_or(configured).to_string()).unwrap_or_default();
    set_for_process(c"max_parallel_maintenance_workers", &value);
}

/// Whether the server may write statements to its log unchanged.
pub fn statements_are_logged() -> bool {
    // SAFETY: plain settings of this process.
    unsafe {
        pg_sys::log_statement == pg_sys::LogStmtLevel::LOGSTMT_ALL as i32
            || pg_sys::log_min_duration_statement >= 0
            || pg_sys::log_duration
            || (pg_sys::log_min_duration_sample >= 0 && pg_sys::log_statement_sample_rate > 0.0)
            || pg_sys::log_xact_sample_rate > 0.0
    }
}

/// Loads pgvector's library so that its settings exist before they are set.
pub fn load_pgvector() {
    thread_local! {
        /// A library stays loaded, and looking for its file takes as long as reading some rows.
        static IS_LOADED: Cell<bool> = const { Cell::new(false) };
    }
    if !IS_LOADED.get() {
        // SAFETY: loads a library from the server's own directory. Loading it twice is harmless.
        unsafe { pg_sys::load_file(c"$libdir/vector".as_ptr(), false) };
        IS_LOADED.set(true);
    }
}

/// The share directory of this server's installation.
pub fn share_dir() -> std::path::PathBuf {
    let mut path = [0 as std::ffi::c_char; pg_sys::MAXPGPATH as usize];
    // SAFETY: the buffer has the size that get_share_path requires.
    unsafe {
        pg_sys::get_share_path((&raw const pg_sys::my_exec_path).cast(), path.as_mut_ptr());
        std::path::PathBuf::from(CStr::from_ptr(path.as_ptr()).to_string_lossy().into_owned())
    }
}

/// The directory of the libraries of this server's installation.
pub fn library_dir() -> std::path::PathBuf {
    // SAFETY: a string that the postmaster sets before anything else runs.
    let path = unsafe { CStr::from_ptr((&raw const pg_sys::pkglib_path).cast()) };
    std::path::PathBuf::from(path.to_string_lossy().into_owned())
}

/// Makes a misspelt setting of this prefix an error.
pub fn reserve_prefix(prefix: &CStr) {
    // SAFETY: the name is copied.
    unsafe { pg_sys::MarkGUCPrefixReserved(prefix.as_ptr()) };
}
