//! Who may use the admin API.

use std::fmt;
use std::path::Path;

use ::http::header::AUTHORIZATION;
use ::http::{HeaderMap, HeaderValue};
use arc_swap::ArcSwapOption;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tollgate_config::{AdminToken, Scope, TokenSecret};

use crate::error::ServeError;
use crate::live::read_regular;

/// The tokens of the admin listener.
#[derive(Debug)]
pub(crate) struct Tokens(Vec<Token>);

struct Token {
    name: String,
    scope: Scope,
    secret: TokenSecret,
    /// Of the token, so that comparing takes the same time whatever it is; `None` while its file
    /// has none.
    digest: ArcSwapOption<[u8; 32]>,
}

/// Who has shown a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bearer {
    pub(crate) name: String,
    pub(crate) scope: Scope,
}

/// What a request shows of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    Nothing,
    /// A token that nobody has.
    Unknown,
    TokenOf(Bearer),
}

impl Tokens {
    /// Reads the tokens.
    pub(crate) fn new(tokens: &[AdminToken]) -> Result<Self, ServeError> {
        let tokens = tokens.iter().map(|token| {
            let digest = digest_of(&token.secret)
                .map_err(|problem| ServeError::token(token.name.clone(), problem))?;
            Ok::<_, ServeError>(Token {
                name: token.name.clone(),
                scope: token.scope,
                secret: token.secret.clone(),
                digest: ArcSwapOption::from_pointee(digest),
            })
        });
        Ok(Self(tokens.collect::<Result<_, _>>()?))
    }

    /// Tells whether nobody is named, so that no token is asked for.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whose token a request shows. Every token is compared, in constant time.
    pub(crate) fn shown(&self, headers: &HeaderMap) -> Shown {
        let Some(shown) = headers.get(AUTHORIZATION).and_then(token) else { return Shown::Nothing };
        let shown = Sha256::digest(shown);
        let mut found: Option<&Token> = None;
        for token in &self.0 {
            let digest = token.digest.load();
            let is_equal = digest
                .as_ref()
                .is_some_and(|digest| bool::from(digest.as_slice().ct_eq(shown.as_slice())));
            // One token may be listed for both scopes.
            if is_equal && found.is_none_or(|found| found.scope < token.scope) {
                found = Some(token);
            }
        }
        match found {
            Some(token) => Shown::TokenOf(Bearer { name: token.name.clone(), scope: token.scope }),
            None => Shown::Unknown,
        }
    }

    /// Reads the files again. A token whose file cannot be read stays what it was.
    pub(crate) fn refresh(&self) {
        for token in &self.0 {
            if matches!(token.secret, TokenSecret::Text(_)) {
                continue;
            }
            match digest_of(&token.secret) {
                Ok(digest) if token.digest.load().as_deref() == Some(&digest) => {}
                Ok(digest) => {
                    token.digest.store(Some(digest.into()));
                    tracing::info!(token = token.name, "a new admin token is in use");
                }
                Err(problem) => {
                    tracing::warn!(token = token.name, %problem, "the admin token stays as it was");
                }
            }
        }
    }
}

fn digest_of(secret: &TokenSecret) -> Result<[u8; 32], String> {
    match secret {
        TokenSecret::Text(text) => Ok(Sha256::digest(text.as_bytes()).into()),
        TokenSecret::File(path) => in_file(path),
    }
}

fn in_file(path: &Path) -> Result<[u8; 32], String> {
    let bytes = read_regular(path)
        .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    let text = bytes.trim_ascii();
    if !text.iter().all(u8::is_ascii_graphic) {
        let path = path.display();
        return Err(format!(
            "{path} has more than one word, or a character outside of ASCII, which nobody can send"
        ));
    }
    if text.len() < AdminToken::LEN_MIN {
        let least = AdminToken::LEN_MIN;
        return Err(format!("{} has fewer than {least} characters", path.display()));
    }
    Ok(Sha256::digest(text).into())
}

/// Returns what stands behind `Bearer `, if anything does.
fn token(value: &HeaderValue) -> Option<&[u8]> {
    let (scheme, token) = value.as_bytes().split_at_checked(b"bearer ".len())?;
    let token = token.trim_ascii();
    (scheme.eq_ignore_ascii_case(b"bearer ") && !token.is_empty()).then_some(token)
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("name", &self.name).field("scope", &self.scope).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_word_that_can_be_sent() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = |bytes: &[u8]| {
            std::fs::write(file.path(), bytes).unwrap();
            in_file(file.path())
        };
        let token: [u8; 32] = Sha256::digest(b"0123456789abcdef").into();
        assert_eq!(read(b" 0123456789abcdef\r\n"), Ok(token));
        for (bytes, problem) in [
            (&b"0123456789abcde"[..], "has fewer than 16 characters"),
            (b"", "has fewer than 16 characters"),
            (b"0123456789abcdef\n0123456789abcdef", "has more than one word"),
            (b"0123456789 abcdef", "has more than one word"),
            (b"\xff\xfe0123456789abcdef", "a character outside of ASCII"),
            (b"0123456789\x00abcdef", "a character outside of ASCII"),
        ] {
            let error = read(bytes).unwrap_err();
            assert!(error.contains(problem), "{error}");
        }
    }
}
