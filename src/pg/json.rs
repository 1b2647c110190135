//! `jsonb` as a function argument, result and column, in the form of the text that PostgreSQL prints for it.
//! pgrx's own type parses this text with serde_json at once, panics if that fails, and changes numbers that
//! have many digits.
//!
//! **Invariant:** no function takes pgrx's `JsonB` as an argument. JSON that is only stored or compared
//! (metadata, filters) stays text. JSON that is read is checked first, because serde_json stops at 127 levels
//! and rounds long numbers.

use kb_types::Json;
use pgrx::callconv::{Arg, ArgAbi, BoxRet, FcInfo};
use pgrx::datum::{Datum, FromDatum, IntoDatum, UnboxDatum};
use pgrx::pg_sys::{self, errcodes::PgSqlErrorCode};
use pgrx::pgrx_sql_entity_graph::metadata::{
    ArgumentError, ReturnsError, ReturnsRef, SqlMappingRef, SqlTranslatable, TypeOrigin,
};
use std::ffi::{CStr, CString, c_char};

/// A jsonb value.
pub struct Jsonb(pub Json);

impl Jsonb {
    fn null() -> Jsonb {
        Jsonb(Json::new("null"))
    }
}

/// A jsonb object in parts, so that long strings need not be printed and parsed again.
pub struct JsonbMembers {
    /// Keys and texts of the members that are strings.
    pub strings: Vec<(String, String)>,
    /// An object of all other members, or the whole value if it is not an object.
    pub rest: Json,
}

/// The datum of a JSON text.
pub fn datum(text: &str) -> Option<pg_sys::Datum> {
    // A jsonb value contains no NUL character.
    let text = CString::new(text).unwrap_or_default();
    // SAFETY: jsonb_in reads a C string that outlives the call, and returns memory in the current context.
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
        // SAFETY: the datum is a jsonb (the SQL signature or the type of the column says so), which jsonb_out
        // detoasts.
        unsafe { print(pg_sys::jsonb_out, datum) }.map(Jsonb)
    }
}

/// The output of an output function for a value of a JSON type.
///
/// SAFETY: the function must print values of the datum's type.
unsafe fn print(
    function: unsafe fn(pg_sys::FunctionCallInfo) -> pg_sys::Datum,
    datum: pg_sys::Datum,
) -> Option<Json> {
    // SAFETY: an output function returns a new C string.
    unsafe {
        let printed = pgrx::direct_function_call_as_datum(function, &[Some(datum)])?;
        Some(printed_json(printed.cast_mut_ptr()))
    }
}

/// SAFETY: a C string, which this function frees.
unsafe fn printed_json(printed: *mut c_char) -> Json {
    // SAFETY: the caller guarantees it.
    unsafe {
        let json = Json::new(utf8(CStr::from_ptr(printed).to_bytes()));
        pg_sys::pfree(printed.cast());
        json
    }
}

fn utf8(bytes: &[u8]) -> &str {
    let Ok(text) = std::str::from_utf8(bytes) else {
        let code = PgSqlErrorCode::ERRCODE_CHARACTER_NOT_IN_REPERTOIRE;
        pgrx::ereport!(ERROR, code, "a JSON value is not valid UTF-8");
    };
    text
}

impl FromDatum for JsonbMembers {
    unsafe fn from_polymorphic_datum(
        datum: pg_sys::Datum,
        is_null: bool,
        _type: pg_sys::Oid,
    ) -> Option<Self> {
        if is_null {
            return None;
        }
        // SAFETY: the datum is a jsonb (the SQL signature says so). Its content is read before the copy, if
        // detoasting made one, is freed.
        unsafe {
            let jsonb: *mut pg_sys::Jsonb = pg_sys::pg_detoast_datum(datum.cast_mut_ptr()).cast();
            let mut iterator = pg_sys::JsonbIteratorInit(&raw mut (*jsonb).root);
            let mut value = std::mem::zeroed::<pg_sys::JsonbValue>();
            let mut next = || (pg_sys::JsonbIteratorNext(&mut iterator, &mut value, true), value);
            let members = match next().0 {
                pg_sys::JsonbIteratorToken::WJB_BEGIN_OBJECT => {
                    let (mut strings, mut others) = (Vec::new(), Vec::new());
                    while let (pg_sys::JsonbIteratorToken::WJB_KEY, key) = next() {
                        let (key, value) = (string(&key).to_string(), next().1);
                        match value.type_ {
                            pg_sys::jbvType::jbvString => strings.push((key, string(&value).to_string())),
                            _ => others.push((key, print_value(&value)?)),
                        }
                    }
                    let others: Vec<(&str, &Json)> =
                        others.iter().map(|(key, value)| (key.as_str(), value)).collect();
                    JsonbMembers { strings, rest: Json::object(&others) }
                }
                _ => JsonbMembers { strings: Vec::new(), rest: print(pg_sys::jsonb_out, datum)? },
            };
            if jsonb != datum.cast_mut_ptr() {
                pg_sys::pfree(jsonb.cast());
            }
            Some(members)
        }
    }
}

/// SAFETY: a string of a jsonb that lives as long as the result is used.
unsafe fn string(value: &pg_sys::JsonbValue) -> &str {
    // SAFETY: the caller guarantees it.
    unsafe {
        let pg_sys::JsonbValue__bindgen_ty_1__bindgen_ty_1 { len, val } = value.val.string;
        utf8(std::slice::from_raw_parts(val.cast(), len.max(0) as usize))
    }
}

/// The value of a member that is not a string, as text.
///
/// SAFETY: the value must come from the iterator of a jsonb.
unsafe fn print_value(value: &pg_sys::JsonbValue) -> Option<Json> {
    // SAFETY: the type says which member of the union is set.
    unsafe {
        match value.type_ {
            pg_sys::jbvType::jbvNull => Some(Json::new("null")),
            pg_sys::jbvType::jbvBool => Some(Json::new(if value.val.boolean { "true" } else { "false" })),
            pg_sys::jbvType::jbvNumeric => print(pg_sys::numeric_out, pg_sys::Datum::from(value.val.numeric)),
            _ => {
                let pg_sys::JsonbValue__bindgen_ty_1__bindgen_ty_4 { len, data } = value.val.binary;
                Some(printed_json(pg_sys::JsonbToCString(std::ptr::null_mut(), data, len)))
            }
        }
    }
}

// SAFETY: unboxing is FromDatum above, which copies.
unsafe impl UnboxDatum for JsonbMembers {
    type As<'src> = JsonbMembers;

    unsafe fn unbox<'src>(datum: Datum<'src>) -> Self::As<'src>
    where
        Self: 'src,
    {
        // SAFETY: the caller guarantees a jsonb that is not null.
        let members = unsafe { JsonbMembers::from_datum(datum.sans_lifetime(), false) };
        members.unwrap_or_else(|| JsonbMembers { strings: Vec::new(), rest: Json::new("null") })
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
unsafe impl SqlTranslatable for JsonbMembers {
    const TYPE_IDENT: &'static str = pgrx::pgrx_sql_entity_graph::pgrx_resolved_type!(JsonbMembers);
    const TYPE_ORIGIN: TypeOrigin = TypeOrigin::External;
    const ARGUMENT_SQL: Result<SqlMappingRef, ArgumentError> = Ok(SqlMappingRef::literal("jsonb"));
    const RETURN_SQL: Result<ReturnsRef, ReturnsError> = Ok(ReturnsRef::One(SqlMappingRef::literal("jsonb")));
}

// SAFETY: the SQL name is that of the type handled above.
unsafe impl SqlTranslatable for Jsonb {
    const TYPE_IDENT: &'static str = pgrx::pgrx_sql_entity_graph::pgrx_resolved_type!(Jsonb);
    const TYPE_ORIGIN: TypeOrigin = TypeOrigin::External;
    const ARGUMENT_SQL: Result<SqlMappingRef, ArgumentError> = Ok(SqlMappingRef::literal("jsonb"));
    const RETURN_SQL: Result<ReturnsRef, ReturnsError> = Ok(ReturnsRef::One(SqlMappingRef::literal("jsonb")));
}
