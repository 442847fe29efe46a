//! The records of texts that the members of a run write.

use std::io::Write;

use anyhow::{Context, Result};
use serde::Serialize;

use crate::base::outside::{printed_cell, printed_json};
use crate::model::Wording;
use crate::predict::generate::Written;
use crate::predict::inputs::Format;

/// Writes a record for each text.
pub struct Texts<'t> {
    words: &'t dyn Wording,
    out: Box<dyn Write>,
    /// The records in CSV; `None` for JSON lines, which are written at once.
    table: Option<csv::Writer<Vec<u8>>>,
}

impl<'t> Texts<'t> {
    pub fn new(words: &'t dyn Wording, format: Format, out: Box<dyn Write>) -> Texts<'t> {
        let table = (format == Format::Csv).then(|| csv::Writer::from_writer(Vec::new()));
        Texts { words, out, table }
    }

    /// Takes the text that follows the prompt `path`.
    ///
    /// # Errors
    /// Fails if a token is unknown, or if the record cannot be written.
    pub fn push(&mut self, path: &str, written: &[Written]) -> Result<()> {
        let ids: Vec<u32> = written.iter().map(|one| one.id).collect();
        let text = self.words.text(&ids)?;
        if let Some(table) = &mut self.table {
            return Ok(table.serialize(Summary::of(&printed_cell(path), &printed_cell(&text), written))?);
        }
        let tokens = written.iter().map(|one| token(self.words, one)).collect::<Result<_>>()?;
        let line = serde_json::to_string(&Whole { path, text: &text, tokens })?;
        writeln!(self.out, "{}", printed_json(&line)).context("cannot write the record")
    }

    /// Writes what has not been written yet.
    ///
    /// # Errors
    /// Fails if the records cannot be written.
    pub fn finish(mut self) -> Result<()> {
        if let Some(table) = self.table {
            self.out.write_all(&table.into_inner()?).context("cannot write the records")?;
        }
        self.out.flush().context("cannot write the records")
    }
}

/// A text that was written, in CSV.
#[derive(Serialize)]
struct Summary<'a> {
    path: &'a str,
    text: &'a str,
    tokens: usize,
    mean_entropy: Option<f64>,
    mean_mutual_information: Option<f64>,
}

/// A text that was written, in JSON lines.
#[derive(Serialize)]
struct Whole<'a> {
    path: &'a str,
    text: &'a str,
    tokens: Vec<Token>,
}

#[derive(Serialize)]
struct Token {
    token: String,
    id: u32,
    probability: f64,
    entropy: f64,
    mutual_information: f64,
}

impl<'a> Summary<'a> {
    fn of(path: &'a str, text: &'a str, written: &[Written]) -> Summary<'a> {
        let mean = |of: fn(&Written) -> f64| {
            (!written.is_empty()).then(|| written.iter().map(of).sum::<f64>() / written.len() as f64)
        };
        Summary {
            path,
            text,
            tokens: written.len(),
            mean_entropy: mean(|one| one.entropy),
            mean_mutual_information: mean(|one| one.mutual_information),
        }
    }
}

fn token(words: &dyn Wording, written: &Written) -> Result<Token> {
    let Written { id, probability, entropy, mutual_information, .. } = *written;
    Ok(Token { token: words.text(&[id])?, id, probability, entropy, mutual_information })
}
