//! A value written in one way, however it was written in the file.

use super::{Node, Scalar, Value};

impl Node {
    /// Writes the value as JSON, which is YAML too and is read to the same value. Two values with
    /// the same fields in the same order are written alike, whatever their quotes, their comments
    /// and their format are.
    pub(crate) fn canonical(&self) -> String {
        let mut json = String::new();
        self.write(&mut json);
        json
    }

    fn write(&self, json: &mut String) {
        match &self.value {
            Value::Null | Value::Broken => json.push_str("null"),
            Value::Scalar(scalar) => scalar.write(json),
            Value::Sequence(items) => {
                json.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        json.push_str(", ");
                    }
                    item.write(json);
                }
                json.push(']');
            }
            Value::Mapping(entries) => {
                json.push('{');
                for (index, entry) in entries.iter().enumerate() {
                    if index > 0 {
                        json.push_str(", ");
                    }
                    quote(&entry.name, json);
                    json.push_str(": ");
                    entry.value.write(json);
                }
                json.push('}');
            }
        }
    }
}

impl Scalar {
    /// Writes a number or a boolean without quotes, be it that the file has quotes: where text is
    /// wanted, either is the text that was written.
    fn write(&self, json: &mut String) {
        let text = self.text.as_str();
        let is_whole = text == "0"
            || (!text.is_empty()
                && !text.starts_with('0')
                && text.bytes().all(|byte| byte.is_ascii_digit()));
        if is_whole || matches!(text, "true" | "false") {
            json.push_str(text);
        } else {
            quote(text, json);
        }
    }
}

fn quote(text: &str, json: &mut String) {
    json.push('"');
    for character in text.chars() {
        match character {
            '"' => json.push_str("\\\""),
            '\\' => json.push_str("\\\\"),
            '\n' => json.push_str("\\n"),
            '\r' => json.push_str("\\r"),
            '\t' => json.push_str("\\t"),
            control if control.is_control() => {
                json.push_str(&format!("\\u{:04x}", control as u32));
            }
            other => json.push(other),
        }
    }
    json.push('"');
}
