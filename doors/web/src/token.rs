//! The token of a process of `eyas web`: with it, a browser or a program proves that it was given
//! the URL that the process has printed. It is new each time the process starts, and is nowhere on
//! disk.

use std::io;

use eyas_session::new_secret;

/// A secret text. Its hash is kept beside it: two hashes are compared in constant time, whatever
/// the lengths and contents of the texts.
pub(crate) struct WebToken {
    text: String,
    hash: blake3::Hash,
}

impl WebToken {
    /// A new random token.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub fn new() -> io::Result<Self> {
        let text: String = new_secret()?.iter().map(|byte| format!("{byte:02x}")).collect();
        let hash = blake3::hash(text.as_bytes());
        Ok(WebToken { text, hash })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether a text is the token. `blake3` compares hashes in constant time.
    pub fn is(&self, given: &str) -> bool {
        blake3::hash(given.as_bytes()) == self.hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_itself_alone_and_another_one_each_time() {
        let (token, other) = (WebToken::new().unwrap(), WebToken::new().unwrap());
        assert!(token.is(token.text()) && !token.is(other.text()));
        assert!(!token.is("") && !token.is(&token.text()[1..]) && token.text().len() >= 32);
    }
}
