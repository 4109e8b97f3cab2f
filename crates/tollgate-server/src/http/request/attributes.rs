//! The value of `attributes`.

use tollgate::Attributes;
use tollgate_core::key;

use super::Mistake;
use super::object::Object;
use super::value::{NotText, bad_escape, kind_of, not_a_name, shortened, string};

/// The most attributes of one request.
pub(super) const COUNT_MAX: usize = 64;

pub(super) fn read(raw: &str) -> Result<Attributes, Mistake> {
    let whole = |detail| Mistake::field("attributes", detail);
    if !raw.starts_with('{') {
        let detail = format!("attributes must be an object of strings, not {}", kind_of(raw));
        return Err(whole(detail));
    }
    // The syntax has been checked, all but the escapes in the names.
    let Object(fields) =
        serde_json::from_str(raw).map_err(|_| whole(bad_escape("attribute name")))?;
    let mut attributes = Attributes::new();
    for (name, raw) in fields {
        let mistake = |detail| match name.as_str() {
            "" => whole(detail),
            name => Mistake::field(format!("attributes.{}", shortened(name)), detail),
        };
        check_name(&attributes, &name).map_err(mistake)?;
        let value = value(&name, raw).map_err(mistake)?;
        attributes.insert(name, value);
    }
    if attributes.is_empty() {
        let detail = "attributes is empty: name at least one attribute of the request";
        return Err(whole(detail.to_owned()));
    }
    Ok(attributes)
}

fn check_name(attributes: &Attributes, name: &str) -> Result<(), String> {
    if !key::is_name(name) {
        return Err(not_a_name("attribute name", name));
    }
    if attributes.value(name).is_some() {
        return Err(format!("attribute {name:?} is given twice: give it once"));
    }
    if attributes.len() == COUNT_MAX {
        return Err(format!(
            "attribute {name:?} is one too many: a request has at most {COUNT_MAX}"
        ));
    }
    Ok(())
}

fn value(name: &str, raw: &str) -> Result<String, String> {
    let value = match string(raw) {
        Ok(value) => value,
        Err(NotText::Kind(kind @ ("a number" | "a boolean"))) => {
            return Err(format!(
                "attribute {name:?} must be a string, not {kind}: write \"{}\"",
                shortened(raw)
            ));
        }
        Err(NotText::Kind(kind)) => {
            return Err(format!(
                "attribute {name:?} must be a string, not {kind}: leave out what the request does \
                 not have"
            ));
        }
        Err(NotText::Escape) => return Err(bad_escape(&format!("attribute {name:?}"))),
    };
    if value.is_empty() {
        return Err(format!(
            "attribute {name:?} is empty: leave out what the request does not have"
        ));
    }
    Ok(value)
}
