//! Conditions that users write about the rows of a table. A condition is parsed as the predicate of an index
//! is parsed, printed with every name qualified, and evaluated on rows.

use super::pinned_settings;
use super::report::from_caught;
use kb_types::error::{Error, Result};
use pgrx::pg_sys::panic::CaughtError;
use pgrx::{PgTryBuilder, pg_sys};
use std::ffi::{CStr, CString};
use std::panic::AssertUnwindSafe;

/// The alias of the table in a printed condition.
const ROW: &CStr = c"t";

/// A parsed condition on one table. It lives as long as the memory context in which it was parsed.
pub struct Condition {
    relation: pg_sys::Oid,
    tree: *mut pg_sys::Node,
}

impl Condition {
    /// Parses a condition on a table, which the text may call [`ROW`]; columns need no qualification.
    /// Sub-selects and aggregates are refused. Names are looked up under the current search_path. PostgreSQL
    /// raises an ERROR for text that it cannot parse.
    pub fn parse(relation: u32, text: &str) -> Result<Condition> {
        let relation = pg_sys::Oid::from(relation);
        let text = CString::new(text).map_err(|e| Error::Internal(e.to_string()))?;
        // SAFETY: the parser's own functions work on its own structures in the current memory context, and
        // the text is copied where it is kept. The relation is closed on every path that returns, and by an
        // ERROR, too.
        unsafe {
            let Some(raw) = one_expression(text.as_ptr()) else {
                return Err(Error::Argument {
                    argument: "published_when",
                    problem: "it must be a single condition".into(),
                });
            };
            let state = pg_sys::make_parsestate(std::ptr::null_mut());
            (*state).p_sourcetext = text.as_ptr();
            let opened = pg_sys::table_open(relation, pg_sys::AccessShareLock as i32);
            let alias = pg_sys::makeAlias(ROW.as_ptr(), std::ptr::null_mut());
            let item = pg_sys::addRangeTableEntryForRelation(
                state,
                opened,
                pg_sys::AccessShareLock as i32,
                alias,
                false,
                true,
            );
            pg_sys::addNSItemToQuery(state, item, false, true, true);
            let kind = pg_sys::ParseExprKind::EXPR_KIND_INDEX_PREDICATE;
            let typed = pg_sys::transformExpr(state, raw, kind);
            let tree = pg_sys::coerce_to_boolean(state, typed, c"published_when".as_ptr());
            pg_sys::assign_expr_collations(state, tree);
            pg_sys::free_parsestate(state);
            pg_sys::table_close(opened, pg_sys::NoLock as i32);
            Ok(Condition { relation, tree })
        }
    }

    /// Does what [`Condition::parse`] does for the argument of a caller: an error of PostgreSQL is returned
    /// as Err and names the argument. After such an error the transaction must be aborted.
    pub fn parse_argument(relation: u32, text: &str) -> Result<Condition> {
        PgTryBuilder::new(AssertUnwindSafe(|| Condition::parse(relation, text)))
            .catch_others(|caught| Err(of_argument(caught)))
            .execute()
    }

    /// Whether the value may change while the row does not, because it depends on time, settings or other
    /// tables.
    pub fn is_mutable(&self) -> bool {
        // SAFETY: only reads the tree.
        unsafe { pg_sys::contain_mutable_functions(self.tree) }
    }

    /// The numbers of the columns that the condition reads, or None if it reads the whole row or a system
    /// column.
    pub fn columns(&self) -> Option<Vec<i16>> {
        let mut numbers: *mut pg_sys::Bitmapset = std::ptr::null_mut();
        // SAFETY: only reads the tree, whose only relation has number 1. The set is walked from its first
        // member.
        unsafe {
            pg_sys::pull_varattnos(self.tree, 1, &mut numbers);
            let mut columns = Vec::new();
            let mut member = pg_sys::bms_next_member(numbers, -1);
            while member >= 0 {
                let column = member + pg_sys::FirstLowInvalidHeapAttributeNumber;
                if column <= 0 {
                    return None;
                }
                columns.push(i16::try_from(column).ok()?);
                member = pg_sys::bms_next_member(numbers, member);
            }
            Some(columns)
        }
    }

    /// The condition as text, which [`Condition::parse_printed`] reads as the same condition in every
    /// session.
    pub fn print(&self) -> String {
        // SAFETY: deparsing reads the tree and the catalogs, and returns a string in the current memory
        // context.
        pinned_settings::pinned(|| unsafe {
            let context = pg_sys::deparse_context_for(ROW.as_ptr(), self.relation);
            let text = pg_sys::deparse_expression(self.tree, context, true, false);
            CStr::from_ptr(text).to_string_lossy().into_owned()
        })
    }

    /// Parses the output of [`Condition::print`].
    pub fn parse_printed(relation: u32, text: &str) -> Result<Condition> {
        pinned_settings::pinned(|| Condition::parse(relation, text))
    }
}

/// The SQLSTATE classes of errors that are the fault of a text: unsupported features, data, syntax and names,
/// limits.
const OF_TEXT: [&str; 4] = ["0A", "22", "42", "54"];

/// Turns an error that was caught while the argument was parsed into one that names the argument, if the text
/// is at fault.
fn of_argument(caught: CaughtError) -> Error {
    let hint = match &caught {
        CaughtError::PostgresError(report) => report.hint().map(|hint| format!(" ({hint})")),
        _ => None,
    };
    match from_caught(caught) {
        Error::Database { sqlstate, message, has_values }
            if OF_TEXT.iter().any(|class| sqlstate.starts_with(class))
                && !message.contains("published_when") =>
        {
            // The caller does not know of any index.
            let message = message.replace("index predicate", "condition");
            let hint = hint.unwrap_or_default();
            Error::Database {
                sqlstate,
                message: format!("invalid published_when: {message}{hint}"),
                has_values,
            }
        }
        error => error,
    }
}

/// Parses a text as an expression, by the grammar that PL/pgSQL uses for its expressions. Returns None if the
/// text has other clauses.
unsafe fn one_expression(text: *const std::ffi::c_char) -> Option<*mut pg_sys::Node> {
    // SAFETY: the parser returns one statement, a SELECT without its first word, or raises an ERROR.
    unsafe {
        let list = pg_sys::raw_parser(text, pg_sys::RawParseMode::RAW_PARSE_PLPGSQL_EXPR);
        if list.is_null() || (*list).length != 1 {
            return None;
        }
        let raw = (*(*list).elements).ptr_value as *mut pg_sys::RawStmt;
        let statement = (*raw).stmt as *mut pg_sys::SelectStmt;
        let select = &*statement;
        let other_clauses = [
            select.distinctClause.is_null(),
            select.intoClause.is_null(),
            select.fromClause.is_null(),
            select.whereClause.is_null(),
            select.groupClause.is_null(),
            select.havingClause.is_null(),
            select.windowClause.is_null(),
            select.valuesLists.is_null(),
            select.sortClause.is_null(),
            select.limitOffset.is_null(),
            select.limitCount.is_null(),
            select.lockingClause.is_null(),
            select.withClause.is_null(),
            select.larg.is_null(),
        ];
        let targets = select.targetList;
        if other_clauses.contains(&false) || targets.is_null() || (*targets).length != 1 {
            return None;
        }
        let target = &*((*(*targets).elements).ptr_value as *mut pg_sys::ResTarget);
        (target.name.is_null() && target.indirection.is_null()).then_some(target.val)
    }
}

/// A condition that is ready to be evaluated, with the rights of the role that was current when this was
/// made.
pub struct Evaluation {
    state: *mut pg_sys::EState,
    context: *mut pg_sys::ExprContext,
    expression: *mut pg_sys::ExprState,
}

impl Evaluation {
    /// Prepares a condition. Raises an ERROR if the current role may not call one of its functions.
    pub fn of(condition: &Condition) -> Evaluation {
        // SAFETY: the executor's own functions work on its own structures, which are freed by drop or with
        // the transaction's memory.
        unsafe {
            let state = pg_sys::CreateExecutorState();
            let expression = pg_sys::ExecPrepareExpr(condition.tree.cast(), state);
            let context = match (*state).es_per_tuple_exprcontext {
                context if context.is_null() => pg_sys::MakePerTupleExprContext(state),
                context => context,
            };
            Evaluation { state, context, expression }
        }
    }

    /// Whether the condition is true of the row in this slot. A condition that is NULL is not true.
    ///
    /// # Safety
    ///
    /// The slot must hold a row of the table for which the condition was parsed.
    pub(super) unsafe fn is_true(&self, slot: *mut pg_sys::TupleTableSlot) -> bool {
        // SAFETY: evaluated in the context's memory, which is reset for each row. The function pointer is the
        // executor's own. The guard turns its errors into panics, as pgrx does for every function of
        // PostgreSQL.
        unsafe {
            pg_sys::MemoryContextReset((*self.context).ecxt_per_tuple_memory);
            (*self.context).ecxt_scantuple = slot;
            let before = pg_sys::CurrentMemoryContext;
            pg_sys::CurrentMemoryContext = (*self.context).ecxt_per_tuple_memory;
            let mut is_null = false;
            let (expression, context) = (self.expression, self.context);
            let value = match (*expression).evalfunc {
                Some(evaluate) => {
                    pg_sys::ffi::pg_guard_ffi_boundary(|| evaluate(expression, context, &mut is_null))
                }
                None => pg_sys::Datum::from(0usize),
            };
            pg_sys::CurrentMemoryContext = before;
            !is_null && value.value() as u8 != 0
        }
    }
}

impl Drop for Evaluation {
    fn drop(&mut self) {
        // While an error unwinds, the transaction frees the state. What the error left half done must not be
        // touched.
        if !std::thread::panicking() {
            // SAFETY: `of` made it, and nothing uses it any more.
            unsafe { pg_sys::FreeExecutorState(self.state) };
        }
    }
}
