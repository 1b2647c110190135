//! `jsonb` as a function argument, result and column: as the text that PostgreSQL prints of it, not parsed. pgrx's own
//! type parses it with serde_json at once, panics where that fails, and changes numbers of many digits.

use crate::model::Json;
use pgrx::callconv::{Arg, ArgAbi, BoxRet, FcInfo};
use pgrx::datum::{Datum, FromDatum, IntoDatum, UnboxDatum};
use pgrx::pg_sys::{self, errcodes::PgSqlErrorCode};
use pgrx::pgrx_sql_entity_graph::metadata::{
    ArgumentError, ReturnsError, ReturnsRef, SqlMappingRef, SqlTranslatable, TypeOrigin,
};
use std::ffi::{CStr, CString};

/// A jsonb value.
pub struct Jsonb(pub Json);

impl Jsonb {
    fn null() -> Jsonb {
        Jsonb(Json::new("null"))
    }
}

/// The datum of a JSON text.
pub(super) fn datum(text: &str) -> Option<pg_sys::Datum> {
    // jsonb holds no NUL character.
    let text = CString::new(text).unwrap_or_default();
    // SAFETY: jsonb_in reads a C string that outlives the call, and returns memory of the current context.
    unsafe {
        pgrx::direct_function_call_as_datum(pg_sys::jsonb_in, &[Some(pg_sys::Datum::from(text.as_ptr()))])
    }
}

impl IntoDatum for Jsonb {
    fn into_datum(self) -> Option<pg_sys::Datum> {
        datum(self.0.as_str())
    }

    fn type_oid() -> pg_sys::Oid {
        pg_sys::JSONBOID
    }
}

impl FromDatum for Jsonb {
    unsafe fn from_polymorphic_datum(
        datum: pg_sys::Datum,
        is_null: bool,
        _type: pg_sys::Oid,
    ) -> Option<Self> {
        if is_null {
            return None;
        }
        // SAFETY: the datum is a jsonb (the SQL signature or the column's type says so); jsonb_out detoasts it, and
        // its result is a C string that is copied and freed.
        unsafe {
            let printed = pgrx::direct_function_call_as_datum(pg_sys::jsonb_out, &[Some(datum)])?;
            let printed: *mut std::ffi::c_char = printed.cast_mut_ptr();
            let Ok(text) = CStr::from_ptr(printed).to_str() else {
                let code = PgSqlErrorCode::ERRCODE_CHARACTER_NOT_IN_REPERTOIRE;
                pgrx::ereport!(ERROR, code, "a JSON value is not valid UTF-8");
            };
            let json = Json::new(text);
            pg_sys::pfree(printed.cast());
            Some(Jsonb(json))
        }
    }
}

// SAFETY: unboxing is FromDatum above, which copies.
unsafe impl UnboxDatum for Jsonb {
    type As<'src> = Jsonb;

    unsafe fn unbox<'src>(datum: Datum<'src>) -> Self::As<'src>
    where
        Self: 'src,
    {
        // SAFETY: the caller guarantees a jsonb that is not null.
        let jsonb = unsafe { Jsonb::from_datum(datum.sans_lifetime(), false) };
        jsonb.unwrap_or_else(Jsonb::null)
    }
}

// SAFETY: unboxing is FromDatum above.
unsafe impl<'fcx> ArgAbi<'fcx> for Jsonb {
    unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
        // SAFETY: the caller guarantees a value that is not null.
        unsafe { arg.unbox_arg_using_from_datum() }.unwrap_or_else(Jsonb::null)
    }
}

// SAFETY: boxing is IntoDatum above.
unsafe impl BoxRet for Jsonb {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> Datum<'fcx> {
        match self.into_datum() {
            // SAFETY: the datum was just made for this call.
            Some(datum) => unsafe { fcinfo.return_raw_datum(datum) },
            None => fcinfo.return_null(),
        }
    }
}

// SAFETY: the SQL name is that of the type handled above.
unsafe impl SqlTranslatable for Jsonb {
    const TYPE_IDENT: &'static str = pgrx::pgrx_sql_entity_graph::pgrx_resolved_type!(Jsonb);
    const TYPE_ORIGIN: TypeOrigin = TypeOrigin::External;
    const ARGUMENT_SQL: Result<SqlMappingRef, ArgumentError> = Ok(SqlMappingRef::literal("jsonb"));
    const RETURN_SQL: Result<ReturnsRef, ReturnsError> = Ok(ReturnsRef::One(SqlMappingRef::literal("jsonb")));
}
