//! Text to tokens and back.

use std::path::Path;

use crate::error::{Error, Result};

/// The tokenizer of a checkpoint.
#[derive(Debug)]
pub struct Tokenizer {
    tokenizer: tokenizers::Tokenizer,
}

impl Tokenizer {
    /// Reads `tokenizer.json` in a folder.
    ///
    /// # Errors
    /// The file is missing or is no tokenizer.
    pub fn open(folder: &Path) -> Result<Tokenizer> {
        let path = folder.join("tokenizer.json");
        let failed = |reason: String| Error::File { path: path.clone(), reason };
        if !path.exists() {
            return Err(failed(
                "is missing\n  help: give tokens, or download the checkpoint's tokenizer.json".into(),
            ));
        }
        Ok(Tokenizer {
            tokenizer: tokenizers::Tokenizer::from_file(&path).map_err(|e| failed(e.to_string()))?,
        })
    }

    /// Reads the text of a `tokenizer.json`.
    ///
    /// # Errors
    /// It is no tokenizer.
    pub fn from_json(json: &str) -> Result<Tokenizer> {
        let tokenizer = json.parse().map_err(|e: tokenizers::Error| Error::Request(e.to_string()))?;
        Ok(Tokenizer { tokenizer })
    }

    /// Tokens of a text, with those that begin it.
    ///
    /// # Errors
    /// The tokenizer fails.
    pub fn tokens(&self, text: &str) -> Result<Vec<u32>> {
        let encoded = self.tokenizer.encode(text, true).map_err(|e| Error::Request(e.to_string()))?;
        Ok(encoded.get_ids().to_vec())
    }

    /// Text of tokens, without special ones.
    ///
    /// # Errors
    /// The tokenizer fails.
    pub fn text(&self, tokens: &[u32]) -> Result<String> {
        self.tokenizer.decode(tokens, true).map_err(|e| Error::Request(e.to_string()))
    }
}

/// Text of a growing list of tokens, piece by piece.
#[derive(Debug, Default)]
pub struct Pieces {
    tokens: Vec<u32>,
    /// Tokens whose text is complete.
    done: usize,
}

impl Pieces {
    /// Adds a token and returns the text that it completes; a character may take several tokens.
    ///
    /// # Errors
    /// The tokenizer fails.
    pub fn push(&mut self, text: &Tokenizer, token: u32) -> Result<String> {
        self.tokens.push(token);
        // The text of a token may depend on the one before, such as a space between words.
        let context = self.done.saturating_sub(4);
        let before = text.text(&self.tokens[context..self.done])?;
        let now = text.text(&self.tokens[context..])?;
        if now.ends_with('\u{fffd}') && self.tokens.len() < self.done + 4 {
            return Ok(String::new());
        }
        self.done = self.tokens.len();
        Ok(now.strip_prefix(&before).unwrap_or(&now).to_owned())
    }
}
