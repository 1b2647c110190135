//! The operators of a filter, and what they take.

use super::filter::{Bound, Comparison, Field, Filter, Key, Test};
use super::json::Json;
use super::timestamp;

pub const OPERATORS: [&str; 10] = ["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin", "contains", "exists"];

/// The condition of an operator, on what `key` names.
pub fn condition(operator: &str, key: Key, value: Option<&Json>) -> Result<Filter, String> {
    if !OPERATORS.contains(&operator) {
        return Err(format!(
            "there is no type \"{operator}\"; there are and, or, not, {}",
            OPERATORS.join(", ")
        ));
    }
    let given = || value.ok_or_else(|| format!("{operator} takes a value"));
    let test = match operator {
        "eq" | "ne" => equals(&key, std::slice::from_ref(given()?))?,
        "in" | "nin" => {
            let values = given()?.elements().ok_or_else(|| format!("{operator} takes an array of values"))?;
            equals(&key, &values)?
        }
        "contains" => contains(&key, given()?)?,
        "exists" => match value.map(Json::as_str) {
            None | Some("true") => Test::Exists,
            Some("false") => return Ok(not(key, Test::Exists)),
            Some(_) => return Err("exists takes true or false, or no value".into()),
        },
        "gt" => Test::Compares(Comparison::Greater, bound(operator, &key, given()?)?),
        "gte" => Test::Compares(Comparison::GreaterOrEqual, bound(operator, &key, given()?)?),
        "lt" => Test::Compares(Comparison::Less, bound(operator, &key, given()?)?),
        _ => Test::Compares(Comparison::LessOrEqual, bound(operator, &key, given()?)?),
    };
    Ok(if matches!(operator, "ne" | "nin") { not(key, test) } else { Filter::Is(key, test) })
}

fn not(key: Key, test: Test) -> Filter {
    Filter::Not(Box::new(Filter::Is(key, test)))
}

/// It is one of these values.
fn equals(key: &Key, values: &[Json]) -> Result<Test, String> {
    match key {
        Key::Field(Field::CreatedAt) => {
            return Ok(Test::At(values.iter().map(time).collect::<Result<_, _>>()?));
        }
        Key::Field(field)
            if !values.iter().all(|value| value.as_str() == "null" || value.text().is_some()) =>
        {
            return Err(format!("{} is compared with a string or null", field.name()));
        }
        _ => {}
    }
    Ok(match values {
        [value] => Test::Equals(value.clone()),
        values => Test::OneOf(values.to_vec()),
    })
}

fn contains(key: &Key, value: &Json) -> Result<Test, String> {
    if let Key::Field(field) = key {
        return Err(format!("contains looks into arrays of metadata, and {} is none", field.name()));
    }
    let values = value.elements().unwrap_or_else(|| vec![value.clone()]);
    match values.iter().all(Json::is_scalar) {
        true => Ok(Test::Contains(values)),
        false => Err("contains takes a string, number, boolean or null, or an array of these".into()),
    }
}

/// What gt, gte, lt and lte compare with.
fn bound(operator: &str, key: &Key, value: &Json) -> Result<Bound, String> {
    if *key == Key::Field(Field::CreatedAt) {
        return time(value).map(Bound::Time);
    }
    let text = value.text();
    match (key, text) {
        (Key::Metadata(_), Some(text)) => {
            Ok(timestamp::microseconds(&text).map_or(Bound::Text(text), Bound::Time))
        }
        (Key::Field(_), Some(text)) => Ok(Bound::Text(text)),
        (Key::Field(field), None) => Err(format!("{} is compared with a string", field.name())),
        (Key::Metadata(_), None) if value.is_number() => Ok(Bound::Number(value.clone())),
        (Key::Metadata(_), None) => Err(format!("{operator} takes a number, a string or a timestamp")),
    }
}

fn time(value: &Json) -> Result<i64, String> {
    value
        .text()
        .and_then(|text| timestamp::microseconds(&text))
        .ok_or_else(|| "$created_at is compared with a timestamp such as \"2024-12-31T23:59:59Z\"".into())
}

impl Field {
    /// As a filter names it.
    pub fn name(self) -> &'static str {
        match self {
            Field::ExternalId => "$external_id",
            Field::Uri => "$uri",
            Field::Title => "$title",
            Field::ContentType => "$content_type",
            Field::CreatedAt => "$created_at",
        }
    }
}
