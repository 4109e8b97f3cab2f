//! `admin_tokens`: who may use the admin API.

use tollgate_core::key;

use crate::decode::Decoder;
use crate::decode::fields::{Fields, Shape};
use crate::mistake::{Mistake, quoted};
use crate::security::{AdminToken, Scope, TokenSecret};
use crate::tree::{Node, Value};

pub(super) const ADMIN_TOKEN: Shape = Shape {
    what: "an admin token",
    fields: &["name", "scope", "token", "token_file"],
    synonyms: &[
        ("id", "name"),
        ("role", "scope"),
        ("scopes", "scope"),
        ("secret", "token"),
        ("value", "token"),
        ("file", "token_file"),
        ("path", "token_file"),
    ],
};

impl Decoder<'_> {
    pub(super) fn admin_tokens(&mut self, node: &Node) -> Option<Vec<AdminToken>> {
        let items = self.list(node);
        if items.is_empty() && matches!(node.value, Value::Sequence(_)) {
            let message = "`admin_tokens` names nobody";
            let help =
                "name at least one, or remove the section to let everybody in who can connect";
            self.error(Mistake::new(node.span.clone(), message).help(help));
            return None;
        }
        let tokens: Vec<_> = items.iter().map(|item| self.admin_token(item)).collect();
        let tokens: Vec<AdminToken> = tokens.into_iter().collect::<Option<_>>()?;
        for (index, token) in tokens.iter().enumerate() {
            let earlier = tokens[..index].iter().find(|other| other.secret == token.secret);
            if let Some(other) = earlier.filter(|other| other.scope != token.scope) {
                let message = format!("the tokens {} and {} are the same", other.name, token.name);
                let help = "give each its own: whoever has it may do what either may";
                self.warning(Mistake::new(items[index].span.clone(), message).help(help));
            }
        }
        Some(tokens)
    }

    fn admin_token(&mut self, node: &Node) -> Option<AdminToken> {
        let fields = Fields::of(node, &ADMIN_TOKEN, self)?;
        let example = self.format.assign_text("name", "deploy");
        let name = fields.required("name", &example, self);
        let name = name.and_then(|node| self.token_name(node));
        let example = self.format.assign_text("scope", "write");
        let scope = fields.required("scope", &example, self);
        let synonyms = &[("readonly", "read"), ("admin", "write"), ("readwrite", "write")];
        let scope = scope.and_then(|node| self.word(node, "scope", &["read", "write"], synonyms));
        let secret = self.token_secret(&fields);
        let scope = if scope? == "write" { Scope::Write } else { Scope::Read };
        Some(AdminToken { name: name?, scope, secret: secret? })
    }

    fn token_name(&mut self, node: &Node) -> Option<String> {
        let text = self.text(node, "`name`", "text")?;
        if key::is_name(text) {
            return Some(text.to_owned());
        }
        let message = format!("`name` cannot be {}", quoted(text));
        let help =
            format!("use 1 to {} letters (a-z, A-Z), digits, `_`, `-` and `.`", key::NAME_LEN_MAX);
        self.error(Mistake::new(node.span.clone(), message).help(help));
        None
    }

    fn token_secret(&mut self, fields: &Fields<'_>) -> Option<TokenSecret> {
        if let Some(entry) = fields.entry("token") {
            self.hide(entry.value.span.clone());
            if fields.entry("token_file").is_some() {
                let message = "an admin token has both `token` and `token_file`";
                let help = "keep one of them";
                self.error(Mistake::new(entry.name_span.clone(), message).help(help));
                return None;
            }
            let node = fields.value("token", self)?;
            return self.token_text(node);
        }
        let example = "/run/secrets/tollgate-token";
        self.required_path(fields, "token_file", example).map(TokenSecret::File)
    }

    fn token_text(&mut self, node: &Node) -> Option<TokenSecret> {
        let text = self.text(node, "`token`", "text")?;
        let is_graphic = text.bytes().all(|byte| byte.is_ascii_graphic());
        let problem = if text.len() < AdminToken::LEN_MIN {
            format!("`token` has fewer than {} characters", AdminToken::LEN_MIN)
        } else if is_graphic {
            return Some(TokenSecret::Text(text.to_owned()));
        } else {
            "`token` has a space or a character outside of ASCII".to_owned()
        };
        let help = "draw one at random, for example with `openssl rand -hex 32`";
        self.error(Mistake::new(node.span.clone(), problem).help(help));
        None
    }
}
