//! `regclass` as a function argument: a table, whose name is looked up in the caller's session.

use pgrx::callconv::{Arg, ArgAbi};
use pgrx::datum::{Datum, FromDatum, UnboxDatum};
use pgrx::pg_sys;
use pgrx::pgrx_sql_entity_graph::metadata::{
    ArgumentError, ReturnsError, ReturnsRef, SqlMappingRef, SqlTranslatable, TypeOrigin,
};

/// The oid of a table, which need not exist.
#[derive(Debug, Clone, Copy)]
pub struct Regclass(pub u32);

impl FromDatum for Regclass {
    unsafe fn from_polymorphic_datum(
        datum: pg_sys::Datum,
        is_null: bool,
        _type: pg_sys::Oid,
    ) -> Option<Self> {
        (!is_null).then_some(Regclass(datum.value() as u32))
    }
}

// SAFETY: unboxing is FromDatum above, of a value that is passed by value.
unsafe impl UnboxDatum for Regclass {
    type As<'src> = Regclass;

    unsafe fn unbox<'src>(datum: Datum<'src>) -> Self::As<'src>
    where
        Self: 'src,
    {
        Regclass(datum.sans_lifetime().value() as u32)
    }
}

// SAFETY: unboxing is FromDatum above.
unsafe impl<'fcx> ArgAbi<'fcx> for Regclass {
    unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
        // SAFETY: the caller guarantees a value that is not null.
        unsafe { arg.unbox_arg_using_from_datum() }.unwrap_or(Regclass(0))
    }
}

// SAFETY: the SQL name is that of the type handled above.
unsafe impl SqlTranslatable for Regclass {
    const TYPE_IDENT: &'static str = pgrx::pgrx_sql_entity_graph::pgrx_resolved_type!(Regclass);
    const TYPE_ORIGIN: TypeOrigin = TypeOrigin::External;
    const ARGUMENT_SQL: Result<SqlMappingRef, ArgumentError> = Ok(SqlMappingRef::literal("regclass"));
    const RETURN_SQL: Result<ReturnsRef, ReturnsError> =
        Ok(ReturnsRef::One(SqlMappingRef::literal("regclass")));
}
