//! Columnar storage of records: a file of many similar entries repeats neither field names nor equal values.
//!
//! A list of objects becomes a table, `{"rows": n, "columns": {...}}`. A column is named by the path of a field, such
//! as `config.chain.tile`. It is a list with one value per row, or `{"values": [...], "rows": [...]}` (distinct values,
//! and an index per row: one digit or letter each, or two, if that is enough), or `{"every": value}`. Lists of objects
//! inside rows become tables too if that is shorter, or `{"parts": [...]}`: the columns of their first objects, of their
//! second ones, and so on. Null fields are left out. Numbers in a table keep six significant digits, which exceeds the
//! precision of any measurement.
//!
//! ```
//! let record = serde_json::json!({ "entries": [{ "m": 1, "time": 9.5 }, { "m": 8, "time": 9.75 }] });
//! let text = cusync_gen::columns::write(&record)?;
//! assert!(text.contains("columns") && text.matches("time").count() == 1);
//! assert_eq!(cusync_gen::columns::read::<serde_json::Value>(&text)?, record);
//! # Ok::<(), serde_json::Error>(())
//! ```

use std::collections::HashMap;

use serde::Serialize;
use serde::de::{DeserializeOwned, Error as _};
use serde_json::{Map, Value, json};

/// Reads a report with its lists of records as tables.
///
/// # Errors
/// The text is not JSON, a table is inconsistent, or the report is not a `T`.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, serde_json::Error> {
    serde_json::from_value(unpacked(serde_json::from_str(text)?)?)
}

/// Writes a report with its lists of records as tables, one column per line. Everything outside such lists stays
/// exact.
///
/// # Errors
/// The report cannot be represented as JSON.
pub fn write<T: Serialize>(report: &T) -> Result<String, serde_json::Error> {
    let mut value = serde_json::to_value(report)?;
    if let Value::Object(fields) = &mut value {
        for field in fields.values_mut().filter(|f| is_table(f)) {
            if let Value::Array(rows) = field.take() {
                *field = table(rows);
            }
        }
    }
    let mut text = String::new();
    print(&value, 0, &mut text);
    Ok(text + "\n")
}

/// Levels of objects with one line per field: the report, a table, its columns.
const LINES: usize = 3;

fn print(value: &Value, depth: usize, text: &mut String) {
    match value {
        Value::Object(fields) if depth < LINES && !fields.is_empty() => {
            let mut before = "{\n";
            for (name, field) in fields {
                text.push_str(before);
                text.push_str(&format!("{}: ", Value::from(name.as_str())));
                print(field, depth + 1, text);
                before = ",\n";
            }
            text.push_str("\n}");
        }
        _ => text.push_str(&value.to_string()),
    }
}

const SEPARATOR: char = '.';

/// Whether the field names of an object can be parts of a path.
fn plain(fields: &Map<String, Value>) -> bool {
    !fields.is_empty() && fields.keys().all(|name| !name.is_empty() && !name.contains(SEPARATOR))
}

fn is_table(value: &Value) -> bool {
    let list = value.as_array().filter(|list| list.len() > 1);
    list.is_some_and(|list| list.iter().all(|row| row.as_object().is_some_and(plain)))
}

fn packed(value: Value) -> Value {
    match value {
        Value::Array(list) => {
            let rows = list.clone();
            let plain: Value = list.into_iter().map(packed).collect();
            if is_table(&plain) { shorter(table(rows), plain) } else { plain }
        }
        Value::Object(fields) => fields.into_iter().map(|(name, field)| (name, packed(field))).collect(),
        Value::Number(number) => match number.as_f64().filter(|_| number.is_f64()) {
            Some(exact) => Value::from(format!("{exact:.5e}").parse().unwrap_or(exact)),
            None => Value::Number(number),
        },
        other => other,
    }
}

fn table(rows: Vec<Value>) -> Value {
    json!({ "rows": rows.len(), "columns": columns(rows) })
}

fn columns(rows: Vec<Value>) -> Value {
    let count = rows.len();
    let mut columns: Map<String, Value> = Map::new();
    for (at, row) in rows.into_iter().enumerate() {
        leaves(String::new(), row, &mut |path, leaf| {
            let column = columns.entry(path).or_insert_with(|| vec![Value::Null; count].into());
            if let Some(cell) = column.get_mut(at) {
                *cell = leaf;
            }
        });
    }
    columns.values_mut().for_each(|column| *column = shortest(column.take()));
    columns.into()
}

/// Calls `add` with every non-null field and its path.
fn leaves(path: String, value: Value, add: &mut dyn FnMut(String, Value)) {
    match value {
        Value::Null => {}
        Value::Object(fields) if plain(&fields) => {
            for (name, field) in fields {
                let path = if path.is_empty() { name } else { format!("{path}{SEPARATOR}{name}") };
                leaves(path, field, add);
            }
        }
        leaf => add(path, leaf),
    }
}

/// The shortest of a column's forms.
fn shortest(column: Value) -> Value {
    let parts = parts(&column);
    let column = match column {
        Value::Array(cells) => cells.into_iter().map(packed).collect(),
        other => other,
    };
    let (mut values, mut rows, mut known) = (Vec::new(), Vec::new(), HashMap::new());
    for value in column.as_array().into_iter().flatten() {
        let row = *known.entry(value.to_string()).or_insert_with(|| {
            values.push(value.clone());
            values.len() - 1
        });
        rows.push(row);
    }
    let rows = digits(&rows, values.len()).map_or_else(|| json!(rows), Value::from);
    let by_value = match values.len() {
        1 => json!({ "every": values[0] }),
        _ => json!({ "values": values, "rows": rows }),
    };
    let flat = shorter(by_value, column);
    parts.map_or(flat.clone(), |parts| shorter(parts, flat))
}

/// The lists in such a column have at most this many objects.
const MOST_PARTS: usize = 4;

/// A column of short lists of objects, as the columns of their first objects, of their second ones, and so on. `None`
/// if that form would lose a cell: it has no empty lists and no empty objects.
fn parts(column: &Value) -> Option<Value> {
    let has_leaf = |object: &Value| {
        let mut found = false;
        leaves(String::new(), object.clone(), &mut |_, _| found = true);
        found && object.as_object().is_some_and(plain)
    };
    let mut longest = 0;
    for cell in column.as_array()?.iter().filter(|cell| !cell.is_null()) {
        let list = cell.as_array().filter(|list| !list.is_empty() && list.len() <= MOST_PARTS)?;
        longest = longest.max(list.len());
        list.iter().all(has_leaf).then_some(())?;
    }
    let part =
        |at: usize| columns(column.as_array().into_iter().flatten().map(|cell| cell[at].clone()).collect());
    (longest > 0).then(|| json!({ "parts": (0..longest).map(part).collect::<Vec<_>>() }))
}

fn shorter(a: Value, b: Value) -> Value {
    if a.to_string().len() < b.to_string().len() { a } else { b }
}

/// Indices of a column's values are numbers with these digits.
const DIGITS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// Indices below `most` in one digit each, or in two; `None`: these are not enough.
fn digits(rows: &[usize], most: usize) -> Option<String> {
    let base = DIGITS.len();
    let text = |row: &usize| [row / base, row % base].map(|digit| char::from(DIGITS[digit]));
    match most {
        most if most <= base => Some(rows.iter().map(|row| text(row)[1]).collect()),
        most if most <= base * base => Some(rows.iter().flat_map(text).collect()),
        _ => None,
    }
}

/// Reads what [`digits`] wrote; `None` for a character that is no digit.
fn indices(text: &str, most: usize) -> Vec<Option<usize>> {
    let digit = |at: &u8| DIGITS.iter().position(|digit| digit == at);
    let width = if most <= DIGITS.len() { 1 } else { 2 };
    let number = |digits: &[u8]| digits.iter().try_fold(0, |sum, at| Some(sum * DIGITS.len() + digit(at)?));
    text.as_bytes().chunks(width).map(number).collect()
}

fn unpacked(value: Value) -> Result<Value, serde_json::Error> {
    Ok(match value {
        Value::Array(list) => Value::Array(list.into_iter().map(unpacked).collect::<Result<_, _>>()?),
        Value::Object(mut fields) => {
            let count = fields.get("rows").and_then(Value::as_u64).filter(|_| fields.len() == 2);
            match (count, fields.get_mut("columns")) {
                (Some(count), Some(Value::Object(columns))) => rows(count, std::mem::take(columns))?,
                _ => {
                    let fields = fields.into_iter().map(|(name, field)| Ok((name, unpacked(field)?)));
                    Value::Object(fields.collect::<Result<_, serde_json::Error>>()?)
                }
            }
        }
        other => other,
    })
}

/// More rows than any record has.
const MOST_ROWS: u64 = 1 << 20;

fn rows(count: u64, columns: Map<String, Value>) -> Result<Value, serde_json::Error> {
    if count > MOST_ROWS {
        return Err(serde_json::Error::custom(format!("{count} rows are more than {MOST_ROWS}")));
    }
    let count = count as usize;
    let mut rows = vec![Map::new(); count];
    for (path, column) in columns {
        let wrong = |fault: &str| serde_json::Error::custom(format!("column `{path}`: {fault}"));
        let cells = cells(count, column).map_err(wrong)?;
        if cells.len() != count {
            return Err(wrong(&format!("{} values for {count} rows", cells.len())));
        }
        for (row, cell) in rows.iter_mut().zip(cells).filter(|(_, cell)| !cell.is_null()) {
            let (mut fields, mut name) = (row, path.as_str());
            while let Some((outer, inner)) = name.split_once(SEPARATOR) {
                let field = fields.entry(outer).or_insert_with(|| Map::new().into());
                fields =
                    field.as_object_mut().ok_or_else(|| wrong("inside a value that is not an object"))?;
                name = inner;
            }
            fields.insert(name.into(), unpacked(cell)?);
        }
    }
    Ok(rows.into_iter().map(Value::Object).collect())
}

const UNKNOWN_FORM: &str = "neither a list, nor values and rows, nor every, nor parts";

/// One value per row.
fn cells(count: usize, column: Value) -> Result<Vec<Value>, &'static str> {
    match column {
        Value::Array(cells) => Ok(cells),
        Value::Object(mut fields) => {
            if let Some(Value::Array(parts)) = fields.remove("parts") {
                return lists(count, parts);
            }
            match (fields.remove("every"), fields.remove("values"), fields.remove("rows")) {
                (Some(value), None, None) => Ok(vec![value; count]),
                (None, Some(Value::Array(values)), Some(rows)) => {
                    let rows: Vec<Option<usize>> = match rows {
                        Value::String(rows) => indices(&rows, values.len()),
                        Value::Array(rows) => rows.iter().map(|row| Some(row.as_u64()? as usize)).collect(),
                        _ => return Err(UNKNOWN_FORM),
                    };
                    let value = |row: Option<usize>| values.get(row?).cloned();
                    rows.into_iter().map(value).collect::<Option<_>>().ok_or("an index of no value")
                }
                _ => Err(UNKNOWN_FORM),
            }
        }
        _ => Err("neither a list nor an object"),
    }
}

/// One list of objects per row; null where the row has none.
fn lists(count: usize, parts: Vec<Value>) -> Result<Vec<Value>, &'static str> {
    let mut lists = vec![Vec::new(); count];
    for part in parts {
        let Value::Object(columns) = part else { return Err("a part that is not an object of columns") };
        let part = rows(count as u64, columns).map_err(|_| "a part with a faulty column")?;
        let Value::Array(objects) = part else { return Err("a part without rows") };
        for (list, object) in lists.iter_mut().zip(objects) {
            if object.as_object().is_some_and(|fields| !fields.is_empty()) {
                list.push(object);
            }
        }
    }
    let cell = |list: Vec<Value>| if list.is_empty() { Value::Null } else { list.into() };
    Ok(lists.into_iter().map(cell).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_again() {
        let point = |m: u32, us: f64, more: Value| json!({ "name": "gpt3_mlp", "dims": [["M", m], ["H", 12288]], "us": us, "plain": m < 3, "more": more });
        let report = json!({
            "device": { "name": "H200", "rates": [{ "tbs": 4.423496465162571 }, { "tbs": 4.5 }] },
            "points": [
                point(1, 73.25, json!("decode")),
                point(2, 0.5, json!({ "stages": [{ "stage": "up", "order": { "rows": 2 } }, { "stage": "down" }, { "stage": "left" }, { "stage": "right" }, { "stage": "join" }], "a.b": 1 })),
                point(3, 1e9, json!({ "stages": [], "empty": {} })),
            ],
            "one": [{ "rows": 1 }], "rows": [], "columns": {},
        });
        let text = write(&report).expect("JSON");
        assert!(text.contains(r#""name": {"every":"gpt3_mlp"}"#), "{text}");
        assert_eq!(text.matches("stage").count(), 3, "{text}");
        assert_eq!(read::<Value>(&text).expect("a table"), report);
    }

    #[test]
    fn short_lists_of_objects_and_many_values_are_columns_too() {
        let name = |at: usize| ["up", "down"][at % 2];
        let stage = |at: usize| json!({ "stage": { "name": name(at), "tile": [64 * at, 64] } });
        let record = |at: usize| match at % 3 {
            0 => {
                json!({ "at": format!("name of {}", at / 2), "config": { "stages": [stage(at), stage(at + 1)] } })
            }
            1 => json!({ "at": format!("name of {}", at / 2), "config": { "stages": [stage(at)] } }),
            _ => json!({ "at": format!("name of {}", at / 2), "config": "decode" }),
        };
        let report = json!({ "records": (0..200).map(record).collect::<Vec<_>>() });
        let text = write(&report).expect("JSON");
        assert!(text.contains("parts") && text.matches("stage.name").count() == 2, "{text}");
        assert!(text.contains(r#""rows":"00000101"#), "{text}");
        assert_eq!(read::<Value>(&text).expect("a table"), report);
        // Without a field in an object, the lists stay lists.
        let report =
            json!({ "records": [{ "list": [{}, stage(0)] }, { "list": [] }, { "list": [stage(0)] }] });
        assert_eq!(read::<Value>(&write(&report).expect("JSON")).expect("a table"), report);
    }

    #[test]
    fn nulls_and_digits_beyond_six_are_left_out_of_tables_only() {
        let exact = 4.423496465162571;
        let report = json!({ "rate": exact, "list": [{ "rate": exact, "none": null }, { "rate": -1.0 / 3.0, "none": null }] });
        let again: Value = read(&write(&report).expect("JSON")).expect("a table");
        assert_eq!(again, json!({ "rate": exact, "list": [{ "rate": 4.4235 }, { "rate": -0.333333 }] }));
    }

    #[test]
    fn a_table_that_contradicts_itself_is_refused() {
        for (column, says) in [
            (json!([1]), "1 values for 2 rows"),
            (json!({ "values": [1], "rows": [0, 1] }), "an index of no value"),
            (json!({ "values": [1], "rows": [0] }), "1 values for 2 rows"),
            (json!({ "values": [1], "rows": "0" }), "1 values for 2 rows"),
            (json!({ "values": [1], "rows": "01" }), "an index of no value"),
            (json!({ "values": [1], "rows": 1 }), "neither"),
            (json!({ "all": 1 }), "neither"),
            (json!({ "parts": [1] }), "not an object of columns"),
            (json!({ "parts": [{ "a": [1] }] }), "faulty column"),
            (json!({ "values": (0..63).collect::<Vec<_>>(), "rows": "00" }), "1 values for 2 rows"),
            (json!({ "values": (0..63).collect::<Vec<_>>(), "rows": "00~~" }), "an index of no value"),
            (json!(1), "neither"),
        ] {
            let text = json!({ "list": { "rows": 2, "columns": { "a": column } } }).to_string();
            let error = read::<Value>(&text).expect_err("refused").to_string();
            assert!(error.contains("column `a`") && error.contains(says), "{error}");
        }
        let text = r#"{ "rows": 1, "columns": { "a": [1], "a.b": [2] } }"#;
        assert!(read::<Value>(text).expect_err("refused").to_string().contains("not an object"));
    }
}
