//! `bella tokenize`: prints the tokens that CLIP reads in a text.

use std::io::{BufRead, Write};

use anyhow::{Context, Result};
use clap::Args;

use crate::model::head::tokens::{Package, tokens};

/// Print CLIP's tokens of texts, one text per line.
#[derive(Args)]
#[command(after_help = "Examples:\n  bella tokenize \"a photo of a cat.\"\n  bella tokenize < prompts.txt")]
pub struct TokenizeArgs {
    /// Texts to tokenize [default: the lines of standard input].
    texts: Vec<String>,

    /// Most tokens per text, including the end token.
    #[arg(long, default_value_t = 77, value_parser = clap::value_parser!(u32).range(2..=4096))]
    context: u32,
}

pub fn run(args: &TokenizeArgs) -> Result<()> {
    let mut output = std::io::BufWriter::new(std::io::stdout().lock());
    let mut print = |text: &str| {
        let found = tokens(text, args.context as usize, Package::OpenClip);
        let numbers: Vec<String> = found.iter().map(i64::to_string).collect();
        writeln!(output, "{}", numbers.join(" "))
    };
    for text in &args.texts {
        print(text)?;
    }
    if args.texts.is_empty() {
        for line in std::io::stdin().lock().lines() {
            print(&line.context("standard input: not UTF-8 text")?)?;
        }
    }
    Ok(output.flush()?)
}
