//! pgvector's `vector` as a function argument and result, and the schema of this type.

use pgrx::callconv::{Arg, ArgAbi, BoxRet, FcInfo};
use pgrx::datum::{Datum, FromDatum, IntoDatum};
use pgrx::pg_sys;
use pgrx::pgrx_sql_entity_graph::metadata::{
    ArgumentError, ReturnsError, ReturnsRef, SqlMappingRef, SqlTranslatable, TypeOrigin,
};
use std::ffi::CStr;

/// A value of pgvector's type. Its layout (pgvector's vector.h) is a varlena header, the dimension as int16,
/// an unused int16, and one float4 for each dimension.
pub struct Vector(pub Vec<f32>);

/// The quoted schema of the type `vector` that has this oid, or None if there is no such type.
pub fn schema_of(type_oid: u32) -> Option<String> {
    // SAFETY: the tuple is read while it is held, and the names are copied.
    unsafe {
        let tuple = pg_sys::SearchSysCache1(
            pg_sys::SysCacheIdentifier::TYPEOID as i32,
            pg_sys::Datum::from(pg_sys::Oid::from(type_oid)),
        );
        if tuple.is_null() {
            return None;
        }
        let header = (*tuple).t_data;
        let row = header.cast::<u8>().add((*header).t_hoff as usize).cast::<pg_sys::FormData_pg_type>();
        let is_vector = CStr::from_ptr((*row).typname.data.as_ptr()) == c"vector";
        let schema = (*row).typnamespace;
        pg_sys::ReleaseSysCache(tuple);
        let name = if is_vector { pg_sys::get_namespace_name(schema) } else { std::ptr::null_mut() };
        if name.is_null() {
            return None;
        }
        Some(CStr::from_ptr(pg_sys::quote_identifier(name)).to_string_lossy().into_owned())
    }
}

const HEADER: usize = 8;

impl IntoDatum for Vector {
    fn into_datum(self) -> Option<pg_sys::Datum> {
        let size = HEADER + 4 * self.0.len();
        // SAFETY: size bytes are allocated and filled exactly as vector.h lays them out.
        unsafe {
            let at = pg_sys::palloc0(size) as *mut u8;
            pgrx::varlena::set_varsize_4b(at.cast(), size as i32);
            (at.add(4) as *mut i16).write(self.0.len() as i16);
            std::ptr::copy_nonoverlapping(self.0.as_ptr().cast::<u8>(), at.add(HEADER), 4 * self.0.len());
            Some(pg_sys::Datum::from(at))
        }
    }

    fn type_oid() -> pg_sys::Oid {
        // The oid differs between databases, and function results, for which this type is used, never ask for
        // it.
        pg_sys::InvalidOid
    }
}

impl FromDatum for Vector {
    unsafe fn from_polymorphic_datum(
        datum: pg_sys::Datum,
        is_null: bool,
        _type: pg_sys::Oid,
    ) -> Option<Self> {
        if is_null {
            return None;
        }
        // SAFETY: the datum is a vector (the SQL signature says so). Detoasting gives the plain layout, whose
        // length bounds what is read.
        unsafe {
            let plain = pg_sys::pg_detoast_datum(datum.cast_mut_ptr());
            let at = plain as *const u8;
            let stored = (pgrx::varlena::varsize_any(plain) - HEADER) / 4;
            let count = ((at.add(4) as *const i16).read() as usize).min(stored);
            let mut values = vec![0f32; count];
            std::ptr::copy_nonoverlapping(at.add(HEADER), values.as_mut_ptr().cast::<u8>(), 4 * count);
            Some(Vector(values))
        }
    }
}

// SAFETY: unboxing is FromDatum above.
unsafe impl<'fcx> ArgAbi<'fcx> for Vector {
    unsafe fn unbox_arg_unchecked(arg: Arg<'_, 'fcx>) -> Self {
        // SAFETY: the caller guarantees a value that is not null.
        match unsafe { arg.unbox_arg_using_from_datum() } {
            Some(vector) => vector,
            None => Vector(Vec::new()),
        }
    }
}

// SAFETY: boxing is IntoDatum above.
unsafe impl BoxRet for Vector {
    unsafe fn box_into<'fcx>(self, fcinfo: &mut FcInfo<'fcx>) -> Datum<'fcx> {
        match self.into_datum() {
            // SAFETY: the datum was just made for this call.
            Some(datum) => unsafe { fcinfo.return_raw_datum(datum) },
            None => fcinfo.return_null(),
        }
    }
}

// SAFETY: the SQL name is that of the type whose layout is handled above.
unsafe impl SqlTranslatable for Vector {
    const TYPE_IDENT: &'static str = pgrx::pgrx_sql_entity_graph::pgrx_resolved_type!(Vector);
    const TYPE_ORIGIN: TypeOrigin = TypeOrigin::External;
    const ARGUMENT_SQL: Result<SqlMappingRef, ArgumentError> = Ok(SqlMappingRef::literal("vector"));
    const RETURN_SQL: Result<ReturnsRef, ReturnsError> =
        Ok(ReturnsRef::One(SqlMappingRef::literal("vector")));
}
