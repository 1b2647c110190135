//! A condition on the rows of a table that somebody wrote: parsed as the predicate of an index is, printed with every name
//! qualified, and evaluated on rows.

use super::pinned_settings;
use super::report::from_caught;
use kb_types::error::{Error, Result};
use pgrx::pg_sys::panic::CaughtError;
use pgrx::{PgTryBuilder, pg_sys};
use std::ffi::{CStr, CString};
use std::panic::AssertUnwindSafe;

/// The name of the table in a printed condition.
const ROW: &CStr = c"t";

/// A parsed condition on one table. It lives as long as the memory context that it was parsed in.
pub struct Condition {
    relation: pg_sys::Oid,
    tree: *mut pg_sys::Node,
}

impl Condition {
    /// Parses a condition on the table that is called [`ROW`] in it; its columns may be named alone. No sub-select, no
    /// aggregate. Names are looked up under the current search_path. What cannot be parsed is an ERROR of PostgreSQL.
    pub fn parse(relation: u32, text: &str) -> Result<Condition> {
        let relation = pg_sys::Oid::from(relation);
        let text = CString::new(text).map_err(|e| Error::Internal(e.to_string()))?;
        // SAFETY: the parser's own functions on its own structures, in the current memory context; the text is copied
        // where it is kept. The relation is closed on every path that returns; an ERROR closes it, too.
        unsafe {
            let Some(raw) = one_expression(text.as_ptr()) else {
                return Err(Error::Argument {
                    argument: "published_when",
                    problem: "it must be one condition".into(),
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

    /// As [`Condition::parse`], of what a caller wrote: PostgreSQL's errors come back as Err and name the argument. After one
    /// the transaction must be aborted.
    pub fn parse_argument(relation: u32, text: &str) -> Result<Condition> {
        PgTryBuilder::new(AssertUnwindSafe(|| Condition::parse(relation, text)))
            .catch_others(|caught| Err(of_argument(caught)))
            .execute()
    }

    /// Whether its value may change while the row does not: by time, by settings, by other tables.
    pub fn is_mutable(&self) -> bool {
        // SAFETY: reads the tree.
        unsafe { pg_sys::contain_mutable_functions(self.tree) }
    }

    /// Numbers of the columns that it reads; None: it reads the whole row, or a system column.
    pub fn columns(&self) -> Option<Vec<i16>> {
        let mut numbers: *mut pg_sys::Bitmapset = std::ptr::null_mut();
        // SAFETY: reads the tree, whose only relation has number 1; the set is walked from its first member.
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

    /// As text that [`Condition::parse_printed`] reads as the same, in every session.
    pub fn print(&self) -> String {
        // SAFETY: deparsing reads the tree and the catalogs, and returns a string of the current memory context.
        pinned_settings::pinned(|| unsafe {
            let context = pg_sys::deparse_context_for(ROW.as_ptr(), self.relation);
            let text = pg_sys::deparse_expression(self.tree, context, true, false);
            CStr::from_ptr(text).to_string_lossy().into_owned()
        })
    }

    /// Parses what [`Condition::print`] printed.
    pub fn parse_printed(relation: u32, text: &str) -> Result<Condition> {
        pinned_settings::pinned(|| Condition::parse(relation, text))
    }
}

/// SQLSTATE classes of what can be wrong with a text: not supported, data, syntax and names, limits.
const OF_TEXT: [&str; 4] = ["0A", "22", "42", "54"];

/// What was caught while the argument was parsed, naming it where the text is to blame.
fn of_argument(caught: CaughtError) -> Error {
    let hint = match &caught {
        CaughtError::PostgresError(report) => report.hint().map(|hint| format!(" ({hint})")),
        _ => None,
    };
    match from_caught(caught) {
        Error::Database { sqlstate, message }
            if OF_TEXT.iter().any(|class| sqlstate.starts_with(class))
                && !message.contains("published_when") =>
        {
            // The caller knows of no index.
            let message = message.replace("index predicate", "condition");
            let hint = hint.unwrap_or_default();
            Error::Database { sqlstate, message: format!("invalid published_when: {message}{hint}") }
        }
        error => error,
    }
}

/// The expression that a text is, as the grammar reads an expression of PL/pgSQL; None where it has other clauses.
unsafe fn one_expression(text: *const std::ffi::c_char) -> Option<*mut pg_sys::Node> {
    // SAFETY: the parser gives one statement, a SELECT without its first word, or an ERROR.
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

/// A condition that is ready to be evaluated, with the rights of the role that is current when it is made.
pub struct Evaluation {
    state: *mut pg_sys::EState,
    context: *mut pg_sys::ExprContext,
    expression: *mut pg_sys::ExprState,
}

impl Evaluation {
    /// An ERROR where the current role may not call one of its functions.
    pub fn of(condition: &Condition) -> Evaluation {
        // SAFETY: the executor's own functions on its own structures; freed by drop, or with the transaction's memory.
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

    /// Whether it is true of the row in this slot; not where it is NULL.
    ///
    /// # Safety
    /// The slot holds a row of the table that the condition was parsed for.
    pub(super) unsafe fn is_true(&self, slot: *mut pg_sys::TupleTableSlot) -> bool {
        // SAFETY: evaluated in the context's memory, which is reset for each row. The function pointer is the executor's
        // own; its errors are turned into panics by the guard, as pgrx does for every function of PostgreSQL.
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
        // While an error unwinds, its transaction frees it: what the error left half done must not be touched.
        if !std::thread::panicking() {
            // SAFETY: made by `of`, and not used any more.
            unsafe { pg_sys::FreeExecutorState(self.state) };
        }
    }
}
