//! `denial`: how a denial is answered.

use crate::answers::{DenialConfig, DenialContent};
use crate::decode::Decoder;
use crate::decode::fields::{Fields, Shape};
use crate::mistake::{Mistake, quoted};
use crate::tree::{Entry, Node, Value};

pub(super) const DENIAL: Shape = Shape {
    what: "`denial`",
    fields: &["status", "body", "text", "content_type", "headers"],
    synonyms: &[("code", "status"), ("message", "text"), ("type", "content_type")],
};

const CONTENT_TYPE: &str = "text/plain; charset=utf-8";

/// What a denial cannot set, and why.
const RESERVED: &[(&str, &str)] = &[
    ("content-type", "set `content_type` beside `text`"),
    ("content-length", "it follows from the body; remove it"),
    ("transfer-encoding", "it follows from the body; remove it"),
    ("connection", "it belongs to the connection; remove it"),
    ("date", "it is the time of the answer; remove it"),
];

impl Decoder<'_> {
    pub(super) fn denial(&mut self, node: &Node) -> Option<DenialConfig> {
        let fields = Fields::of(node, &DENIAL, self)?;
        let default = DenialConfig::default();
        let status = match fields.value("status", self) {
            None => Some(default.status),
            Some(node) => self.denial_status(node),
        };
        let body = self.denial_body(&fields);
        let headers = match fields.value("headers", self) {
            None => Some(default.headers),
            Some(node) => self.denial_headers(node),
        };
        Some(DenialConfig { status: status?, body: body?, headers: headers? })
    }

    fn denial_status(&mut self, node: &Node) -> Option<u16> {
        let status = self.whole(node, "status", "429")?;
        let code = u16::try_from(status).ok().filter(|code| (400..=599).contains(code));
        if code.is_none() {
            let message = format!("`status` must be from 400 to 599, not {status}");
            let help = "the usual one is 429; 503 is understood as well";
            self.error(Mistake::new(node.span.clone(), message).help(help));
        }
        if let Some(code @ (500..=502 | 504..=599)) = code {
            let message =
                format!("gateways take {code} for a failure, and may let denied requests pass");
            self.warning(Mistake::new(node.span.clone(), message).help("write 429, or 503"));
        }
        code
    }

    fn denial_body(&mut self, fields: &Fields<'_>) -> Option<DenialContent> {
        let body = fields.value("body", self).map(|node| {
            let synonyms = &[("json", "problem"), ("empty", "none"), ("off", "none")];
            self.word(node, "body", &["problem", "none"], synonyms)
        });
        let content_type = match fields.value("content_type", self) {
            None => Some(CONTENT_TYPE),
            Some(node) => self.media_type(node),
        };
        let text = fields.value("text", self).map(|node| self.text(node, "`text`", "text"));
        if let (Some(entry), Some(body)) = (fields.entry("text"), body) {
            let body = body?;
            let message = format!("a denial has `text`, or `body: {body}`, not both");
            self.error(Mistake::new(entry.name_span.clone(), message).help("remove one of them"));
            return None;
        }
        let Some(text) = text else {
            if let Some(entry) = fields.entry("content_type") {
                let message = "`content_type` is that of `text`, which is not there";
                let help = "add `text`, or remove this line";
                self.error(Mistake::new(entry.name_span.clone(), message).help(help));
            }
            return match body {
                None => Some(DenialContent::Usual),
                Some(body) if body? == "problem" => Some(DenialContent::Problem),
                Some(_) => Some(DenialContent::Empty),
            };
        };
        let (text, content_type) = (text?.to_owned(), content_type?.to_owned());
        Some(DenialContent::Text { text, content_type })
    }

    fn media_type<'n>(&mut self, node: &'n Node) -> Option<&'n str> {
        let value = self.text(node, "`content_type`", "a media type")?;
        let is_type = value.split_once('/').is_some_and(|(kind, _)| is_token(kind));
        if is_type && is_value(value) {
            return Some(value);
        }
        let message = format!("{} is not a media type", quoted(value));
        let help = "for example `text/html; charset=utf-8`";
        self.error(Mistake::new(node.span.clone(), message).help(help));
        None
    }

    fn denial_headers(&mut self, node: &Node) -> Option<Vec<(String, String)>> {
        let Value::Mapping(entries) = &node.value else {
            let help = "for example `headers: { Cache-Control: no-store }`";
            self.expected(node, "`headers`", "a mapping of names to values", Some(help));
            return None;
        };
        let headers: Vec<_> = entries.iter().map(|entry| self.denial_header(entry)).collect();
        for (index, entry) in entries.iter().enumerate() {
            let is_same = |other: &&Entry| other.name.eq_ignore_ascii_case(&entry.name);
            if let Some(first) = entries[..index].iter().find(is_same) {
                let message = format!("{} is set twice", quoted(&entry.name));
                self.error(
                    Mistake::new(entry.name_span.clone(), message)
                        .also(first.name_span.clone(), "it is set here")
                        .help("the case of letters does not matter: remove one of them"),
                );
                return None;
            }
        }
        headers.into_iter().collect()
    }

    fn denial_header(&mut self, entry: &Entry) -> Option<(String, String)> {
        let name = entry.name.to_ascii_lowercase();
        if !is_token(&name) {
            let message = format!("{} is not the name of a header", quoted(&entry.name));
            let help = "a name has letters, digits and `-`";
            self.error(Mistake::new(entry.name_span.clone(), message).help(help));
            return None;
        }
        if let Some((_, instead)) = RESERVED.iter().find(|(reserved, _)| *reserved == name) {
            let message = format!("a denial cannot set {}", quoted(&entry.name));
            self.error(Mistake::new(entry.name_span.clone(), message).help(*instead));
            return None;
        }
        let field = format!("the value of {}", quoted(&entry.name));
        let value = self.text(&entry.value, &field, "text")?;
        if !is_value(value) {
            let message = format!("{} is not the value of a header", quoted(value));
            let help = "a value has printable ASCII characters, on one line";
            self.error(Mistake::new(entry.value.span.clone(), message).help(help));
            return None;
        }
        Some((name, value.to_owned()))
    }
}

pub(super) fn is_token(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(allowed)
}

pub(super) fn is_value(value: &str) -> bool {
    value.bytes().all(|byte| (b' '..=b'~').contains(&byte)) && value.trim() == value
}
